"""The names of an export's files, signatures and versions, for those who write and read them."""

import os
from pathlib import Path

from gpt1_keras.files import contents_of

# Files in an export's folder.
SAVED_MODEL_FILE = "saved_model.pb"
EXTRA_FOLDER = "assets.extra"  # TensorFlow's folder for further files of a SavedModel
METADATA_FILE = f"{EXTRA_FOLDER}/gpt1_keras.json"
README_FILE = f"{EXTRA_FOLDER}/README.md"
WARMUP_FILE = f"{EXTRA_FOLDER}/tf_serving_warmup_requests"

# Signatures of a SavedModel. TensorFlow Serving knows the first three by these names.
DEFAULT_SIGNATURE = "serving_default"
CLASSIFY = "classify"
REGRESS = "regress"
EXPLAIN = "explain"
SCORE = "score"
GENERATE = "generate"
EMBED = "embed"

# Signatures of SavedModels and .tflite files alike, and of .tflite files alone.
TOKENIZE = "tokenize"
TOKENS = "tokens"
TEXT = "text"

# The one input of signatures that take tf.Examples.
EXAMPLES_INPUT = "inputs"


def is_version(path: Path) -> bool:
    """Returns whether a path is a folder named by a number."""
    digits = path.name.isascii() and path.name.isdecimal()
    return digits and int(path.name) < 2**63 and path.is_dir()


def find_export(path: str | os.PathLike[str]) -> Path:
    """Finds the folder of an export.

    Args:
        path: of one version, or of the base folder, for the newest version in it.

    Raises:
        FileNotFoundError: there is no export.
    """
    folder = Path(path)
    if (folder / SAVED_MODEL_FILE).is_file():
        return folder
    versions = [each for each in folder.glob("*") if is_version(each)]
    found = max(versions, key=lambda each: int(each.name), default=folder)
    if not (found / SAVED_MODEL_FILE).is_file():
        raise FileNotFoundError(
            f"{found} is not an export: it has no {SAVED_MODEL_FILE}. {contents_of(found)}"
        )
    return found

"""Downloads and checks presets that have a handle, such as `hf://openai-community/openai-gpt`.

KerasHub's own clients download (huggingface_hub, kagglehub, modelscope), into their caches.
"""

import hashlib
import os
import pathlib
from typing import Any, TypeGuard, TypeVar

import huggingface_hub
from huggingface_hub.errors import LocalEntryNotFoundError

from gpt1_keras.files import read_json
from gpt1_keras.upstream import (
    CONFIG_FILE,
    METADATA_FILE,
    MODEL_WEIGHTS_FILE,
    PREPROCESSOR_CONFIG_FILE,
    TASK_CONFIG_FILE,
    TASK_WEIGHTS_FILE,
    TOKENIZER_CONFIG_FILE,
    get_file,
)

CARD_FILE = "README.md"
HANDLES = ("hf://", "kaggle://", "modelscope://")

# Files that a preset may hold besides its configuration. The loader reports missing ones.
_KERAS_FILES = (
    *(CARD_FILE, METADATA_FILE, TASK_CONFIG_FILE, PREPROCESSOR_CONFIG_FILE, TOKENIZER_CONFIG_FILE),
    *("assets/tokenizer/vocabulary.json", "assets/tokenizer/merges.txt"),
)
_TRANSFORMERS_FILES = (CARD_FILE, "vocab.json", "merges.txt", "tokenizer.json")
# One file of weights, or the index of several.
_KERAS_WEIGHTS = (MODEL_WEIGHTS_FILE, "model.weights.json")
TRANSFORMERS_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")

_Class = TypeVar("_Class")


def is_handle(preset: str | os.PathLike[str]) -> bool:
    """Returns whether a preset is named by a handle, which is downloaded."""
    return isinstance(preset, str) and preset.startswith(HANDLES)


def is_transformers_config(config: Any) -> TypeGuard[dict[str, Any]]:
    """Returns whether the content of a config.json was written by `transformers`, not by Keras."""
    return isinstance(config, dict) and "model_type" in config and "registered_name" not in config


def local_preset(preset: str | os.PathLike[str], weights: bool = True) -> str:
    """Downloads the preset of a handle, unless it is in the cache, and returns its folder there.

    A preset's name or folder is returned as it is. Weights are downloaded only where needed.

    Raises:
        FileNotFoundError: there is no preset at the handle.
        ValueError: the handle is malformed, or a file is damaged, which is removed from the cache.
        OSError: a file cannot be downloaded. The cache holds only whole files.
        ImportError: the handle's client is not installed.
    """
    if not is_handle(preset):
        # Absolute: pathlib turns ./NAME into NAME, which may name a preset that ships.
        return preset if isinstance(preset, str) else os.path.abspath(preset)
    assert isinstance(preset, str)
    folder = _fetch(preset, CONFIG_FILE).parent
    is_transformers = is_transformers_config(read_json(folder / CONFIG_FILE))

    def fetch(name: str) -> bool:
        """Downloads a file. Returns whether the handle has it."""
        try:
            path = _fetch(preset, name)
        except FileNotFoundError:
            return False
        if path != folder / name:
            raise OSError(f"{preset} was changed while it was downloaded. Try again.")
        return True

    for name in _TRANSFORMERS_FILES if is_transformers else _KERAS_FILES:
        fetch(name)
    if weights:
        single, index = TRANSFORMERS_WEIGHTS if is_transformers else _KERAS_WEIGHTS
        if not fetch(single) and fetch(index):
            for name in shards(folder / index):
                fetch(name)
        if not is_transformers:
            fetch(TASK_WEIGHTS_FILE)
    return os.fspath(folder)


def shards(index: pathlib.Path) -> list[str]:
    """Returns the weights files that an index lists. Raises ValueError if it is damaged."""
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict):
        raise ValueError(f"{index} is damaged: it has no weight_map.")
    # Keras lists several files for weights that are spread over them.
    names = {
        name for each in files.values() for name in ([each] if isinstance(each, str) else each)
    }
    if strange := [name for name in names if name != pathlib.PurePath(name).name]:
        raise ValueError(f"{index} is damaged: it lists {strange[0]!r}, outside its folder.")
    return sorted(names)


class FromHandle:
    """A mixin before KerasHub's classes without weights: loads their presets from handles."""

    @classmethod
    def from_preset(
        cls: type[_Class], preset: str | os.PathLike[str], *args: Any, **kwargs: Any
    ) -> _Class:
        """KerasHub's, from a name, a folder or a handle; see `local_preset` for the errors."""
        folder = local_preset(preset, weights=False)
        return super().from_preset(folder, *args, **kwargs)  # type: ignore[misc]


def _fetch(handle: str, name: str) -> pathlib.Path:
    """Downloads a file, and returns its path in the cache; see `local_preset` for other errors.

    Raises FileNotFoundError if the handle has no such file.
    """
    try:
        path = pathlib.Path(get_file(handle, name))
    except FileNotFoundError as error:
        # KerasHub raises this error both for a missing file and for one that it cannot reach.
        unreached = isinstance(error.__cause__, LocalEntryNotFoundError)
        if not unreached or _is_known_to_be_missing(handle, name):
            raise FileNotFoundError(f"{handle} has no {name}.") from None
        raise OSError(_describe(handle, name, error.__cause__)) from error
    except (ValueError, ImportError):
        raise
    except Exception as error:  # each client has its own classes
        raise OSError(_describe(handle, name, error)) from error
    if handle.startswith("hf://"):
        _check_hash(handle, path)
    return path


def _is_known_to_be_missing(handle: str, name: str) -> bool:
    """Returns whether the cache records that the repository has no such file, also offline."""
    repository = handle.removeprefix("hf://")
    found = huggingface_hub.try_to_load_from_cache(repository, name)
    return found is huggingface_hub._CACHED_NO_EXIST


def one_line(error: BaseException | None) -> str:
    """Returns an error's message on one line; the clients' messages have several."""
    return " ".join(str(error).split())


def _describe(handle: str, name: str, error: BaseException | None) -> str:
    return f"Could not download {name} of {handle}: {one_line(error)}"


def _check_hash(handle: str, path: pathlib.Path) -> None:
    """Compares a file with the hash that the hub lists; huggingface_hub compares only sizes.

    The hash is the name of the cache's blob: SHA-256 for large files, git's SHA-1 for others.
    Without symbolic links in the cache, it is not known. Raises ValueError if the hashes differ;
    the file is removed.
    """
    if not path.is_symlink():
        return
    blob = path.parent / path.readlink()
    if len(blob.name) == 64:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    elif len(blob.name) == 40:
        content = path.read_bytes()
        found = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    else:
        return
    if found != blob.name:
        for each in (blob.resolve(), blob, path):
            each.unlink(missing_ok=True)
        raise ValueError(
            f"{path.name} of {handle} is damaged, and was removed from the cache: its hash is "
            f"{found}; expected {blob.name}. Try again."
        )

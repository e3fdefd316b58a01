"""The versions of an export: folders in its base folder, named by numbers."""

import os
from pathlib import Path

from gpt1_keras.files import contents_of
from serving.export_names import SAVED_MODEL_FILE


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

"""Publishes a preset on a model hub or as a folder."""

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import huggingface_hub
import keras_hub

from gpt1_keras.files import atomic_path
from gpt1_keras.handles import CARD_FILE, HANDLES, one_line
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.presets.card import write_card
from gpt1_keras.presets.pretrained import find_preset
from gpt1_keras.presets.tasks import load_task
from gpt1_keras.upstream import TASK_CONFIG_FILE


def upload_preset(uri: str, preset: str | os.PathLike[str]) -> None:
    """Publishes a preset with its model card; otherwise like `keras_hub.upload_preset`.

    KerasHub replaces the preset's card by an empty one, and then deletes both. This function
    publishes the card, and writes one from the preset's files if there is none. It does not publish
    a preset that cannot be loaded.

    Args:
        uri: `hf://[ORG/]NAME` or `kaggle://ORG/MODEL/keras/VARIANT`, for which the hub's client
            must be logged in; or the path of a folder, which is written whole or not at all, and
            replaces an existing one.
        preset: a name, a folder or a handle, as in `find_preset`.

    Raises:
        FileNotFoundError: there is no preset.
        ValueError: the preset is damaged, or the handle is malformed.
        OSError: the hub cannot be reached, or refuses the preset.
    """
    folder = find_preset(preset)
    scheme = next((each for each in HANDLES if uri.startswith(each)), None)
    if scheme == "modelscope://" or (scheme is None and "://" in uri):
        raise ValueError(f"A preset goes to hf://, kaggle:// or a folder. Received: {uri}.")
    if (folder / TASK_CONFIG_FILE).is_file():
        load_task(folder)
    else:
        CausalBackbone.from_preset(os.fspath(folder))
    with _with_card(folder) as whole:
        if scheme is None:
            with atomic_path(uri) as temporary:
                shutil.copytree(whole, temporary)
            return
        try:
            if scheme == "kaggle://":
                keras_hub.upload_preset(uri, os.fspath(whole))
            else:
                repository = huggingface_hub.create_repo(uri.removeprefix(scheme), exist_ok=True)
                huggingface_hub.upload_folder(repo_id=repository.repo_id, folder_path=whole)
        except (ValueError, ImportError):
            raise
        except Exception as error:  # each client has its own classes
            raise OSError(f"Could not publish {preset} as {uri}: {one_line(error)}") from error


@contextlib.contextmanager
def _with_card(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the folder if it has a card, and otherwise a copy with a card."""
    if (folder / CARD_FILE).is_file():
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        copy = pathlib.Path(temporary, folder.name)
        shutil.copytree(folder, copy)
        write_card(copy)
        yield copy

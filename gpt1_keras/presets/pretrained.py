"""Finds the folders of presets, those that ship and all others."""

import os
import pathlib

from gpt1_keras.files import contents_of
from gpt1_keras.handles import HANDLES, is_handle, local_preset
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.preset_files import check_not_of_openai
from gpt1_keras.presets.shipped import PRETRAINED
from gpt1_keras.upstream import CONFIG_FILE, register_presets

# Where the folder of a run has its preset: of a fine-tuning, and of a pre-training.
_OF_A_RUN = ("best", "preset")


def find_preset(preset: str | os.PathLike[str], weights: bool = True) -> pathlib.Path:
    """Finds the folder of a preset.

    Args:
        preset: the name of a preset that ships; the path of a preset's folder, of a run's, or of a
            checkpoint of `transformers`; or a handle, `hf://`, `kaggle://` or `modelscope://`,
            whose files are downloaded.
        weights: whether to download a handle's weights too.

    Returns:
        The absolute path.

    Raises:
        FileNotFoundError: it is none of these.
        ValueError, OSError, ImportError: see `gpt1_keras.handles.local_preset`.
    """
    if is_handle(preset):
        return pathlib.Path(local_preset(preset, weights))
    # Absolute: pathlib turns ./NAME into NAME, which KerasHub would take for a preset that ships.
    ships = isinstance(preset, str) and preset in PRETRAINED
    folder = _folder(preset) if ships else preset_in(pathlib.Path(preset).absolute())
    if not (folder / CONFIG_FILE).is_file():
        check_not_of_openai(folder)
        raise FileNotFoundError(
            f"{preset} is not a preset: neither one that ships ({', '.join(PRETRAINED)}) nor a "
            f"folder that has a config.json, nor a run that has one in best/ or preset/, nor a "
            f"handle ({', '.join(HANDLES)}). {contents_of(preset)}"
        )
    return folder


def preset_in(folder: pathlib.Path) -> pathlib.Path:
    """Returns the folder of a run's preset; any other folder as it is."""
    if not (folder / CONFIG_FILE).is_file():
        for name in _OF_A_RUN:
            if (folder / name / CONFIG_FILE).is_file():
                return folder / name
    return folder


def _folder(name: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the folder of a preset that ships."""
    return pathlib.Path(__file__).parent / name


# `from_preset` then finds presets by name. KerasHub accepts a path instead of a handle.
register_presets(
    {
        name: {"metadata": {"description": description}, "kaggle_handle": os.fspath(_folder(name))}
        for name, description in PRETRAINED.items()
    },
    GPT1Backbone,
)

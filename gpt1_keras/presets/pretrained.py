"""The pre-trained models that ship with the package.

Each is a folder beside this file, as `save_to_preset` writes it, with its model card, README.md.
"""

import os
import pathlib

from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.optimization.keras_internals import register_presets

PRETRAINED = {
    "gpt1_tiny_books": "GPT-1 of 5 million parameters, pre-trained on books of the public domain.",
}


def find_preset(preset):
    """The folder of a preset.

    Args:
        preset: str, the name of a preset that ships, or the path of a preset's folder.

    Returns:
        `pathlib.Path`, absolute.

    Raises:
        FileNotFoundError: it is neither.
    """
    # Absolute, as KerasHub would take ./NAME, once a path, for the name of one that ships.
    folder = _folder(preset) if preset in PRETRAINED else pathlib.Path(preset).absolute()
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{preset} is no preset: neither one that ships ({', '.join(PRETRAINED)}) nor a folder "
            "that has a config.json."
        )
    return folder


def _folder(name):
    return pathlib.Path(__file__).parent / name


# So `from_preset` finds them by name. KerasHub takes a path wherever it takes a handle.
register_presets(
    {
        name: {"metadata": {"description": description}, "kaggle_handle": os.fspath(_folder(name))}
        for name, description in PRETRAINED.items()
    },
    GPT1Backbone,
)

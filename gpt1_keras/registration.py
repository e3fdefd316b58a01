"""Puts our classes into the registries of Keras and KerasHub.

`keras.saving.load_model` and KerasHub's `from_preset` find a class only after its module has been
imported.
"""

import importlib


def register_with_keras() -> None:
    """Imports Keras and every name of this package."""
    for name in (__package__, f"{__package__}.presets"):
        package = importlib.import_module(name)
        for public in package.__all__:
            getattr(package, public)

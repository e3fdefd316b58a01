"""Tells the weights of a preset from others of the same name."""

import hashlib

from gpt1_keras.presets import find_preset

_WEIGHTS = (".h5", ".safetensors", ".bin")  # of Keras and of `transformers`
_DIGITS = 16


def preset_fingerprint(preset: str) -> str:
    """Returns a short hash of the files of a preset's weights.

    Args:
        preset: a name, a folder or a handle, as of `gpt1_keras.presets.find_preset`.

    Raises:
        FileNotFoundError: there is no such preset.
    """
    total = hashlib.sha256()
    for path in sorted(find_preset(preset).iterdir()):
        if path.suffix in _WEIGHTS:
            with open(path, "rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:_DIGITS]

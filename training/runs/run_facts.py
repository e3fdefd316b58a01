"""What identifies a run: its options, and the weights that it starts from."""

import dataclasses
import hashlib
from typing import Any

from gpt1_keras.presets import find_preset
from training.runs.finetune_options import FinetuneOptions
from training.runs.pretrain_options import PretrainOptions

_WEIGHTS = (".h5", ".safetensors", ".bin")  # of Keras and of `transformers`
_DIGITS = 16


def _fingerprint(preset: str) -> str:
    """Returns a short hash of the files of a preset's weights."""
    total = hashlib.sha256()
    for path in sorted(find_preset(preset).iterdir()):
        if path.suffix in _WEIGHTS:
            with open(path, "rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:_DIGITS]


def facts_of(options: FinetuneOptions | PretrainOptions) -> dict[str, Any]:
    """Returns what a run's folder keeps: the options, and a hash of the weights it starts from.

    So no run goes on with other weights of the same name, and no table mixes the two.
    """
    preset = options.initial_weights
    fingerprint = None if preset is None else _fingerprint(preset)
    return {**dataclasses.asdict(options), "preset_fingerprint": fingerprint}

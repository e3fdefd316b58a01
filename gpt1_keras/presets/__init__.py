"""Named configurations of the backbones; presets: those that ship, loading and uploading them."""

from gpt1_keras.presets.configurations import (
    CONFIGURATIONS,
    backbone_class,
    build_backbone,
    configuration,
)
from gpt1_keras.presets.pretrained import PRESET_HELP, PRETRAINED, find_preset
from gpt1_keras.presets.tasks import load_task
from gpt1_keras.presets.tokenizers import load_tokenizer
from gpt1_keras.presets.upload import upload_preset

__all__ = [
    "CONFIGURATIONS",
    "PRESET_HELP",
    "PRETRAINED",
    "backbone_class",
    "build_backbone",
    "configuration",
    "find_preset",
    "load_task",
    "load_tokenizer",
    "upload_preset",
]

"""Named configurations of the decoder, and the pre-trained models that ship."""

from gpt1_keras.presets.configurations import CONFIGURATIONS, configuration
from gpt1_keras.presets.pretrained import PRETRAINED, find_preset

__all__ = ["CONFIGURATIONS", "PRETRAINED", "configuration", "find_preset"]

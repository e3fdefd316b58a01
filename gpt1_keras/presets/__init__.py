"""Named configurations of the decoder, and the pre-trained models that ship."""

from gpt1_keras.presets.configurations import CONFIGURATIONS, build_decoder, configuration
from gpt1_keras.presets.pretrained import PRETRAINED, find_preset

__all__ = ["CONFIGURATIONS", "PRETRAINED", "build_decoder", "configuration", "find_preset"]

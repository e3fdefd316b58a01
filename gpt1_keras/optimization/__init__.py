"""The paper's objectives, its Adam and schedules, and the training step."""

from gpt1_keras.optimization import optimizer

__all__ = ["optimizer"]

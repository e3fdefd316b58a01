"""Calibration: what makes a task's logits probabilities that mean what they say."""

import dataclasses
import math
from typing import Any

from keras import ops

from gpt1_keras.types import Tensor


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What `training.calibrate` learns on validation data, and presets hold.

    Args:
        temperature: what logits are divided by before the softmax (Guo et al., 2017, section 4.2).
            It never changes which of them is the largest.
        sure_threshold: from which probability on an answer is called sure; None if none is.

    Raises:
        ValueError: the temperature is not above 0, or the threshold not from 0 to 1.
    """

    temperature: float = 1.0
    sure_threshold: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.temperature < math.inf:
            raise ValueError(f"`temperature` must be above 0. Received: {self.temperature}.")
        if self.sure_threshold is not None and not 0.0 <= self.sure_threshold <= 1.0:
            raise ValueError(
                f"`sure_threshold` must be from 0 to 1. Received: {self.sure_threshold}."
            )

    def probabilities(self, logits: Tensor) -> Tensor:
        """The softmax at the temperature, float of the logits' shape."""
        return ops.softmax(logits if self.temperature == 1.0 else logits / self.temperature)

    def is_sure(self, probabilities: Tensor) -> Tensor:
        """Whether the best of each example reaches the threshold, bool `[batch]`.

        Args:
            probabilities: float `[batch, classes or choices]`.
        """
        return ops.max(probabilities, axis=-1) >= self.sure_threshold

    def get_config(self) -> dict[str, Any]:
        """The arguments that are not the defaults, so that other presets stay as they were."""
        given = dataclasses.asdict(self)
        return {name: value for name, value in given.items() if value != FRESH_ARGUMENTS[name]}


UNCALIBRATED = Calibration()
# The arguments of tasks with a calibration, as a fresh head has them: what a preset's head showed
# of its own probabilities, others do not take over.
FRESH_ARGUMENTS = dataclasses.asdict(UNCALIBRATED)

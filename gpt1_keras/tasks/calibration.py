"""Calibration: turns a task's logits into probabilities that match how often they are right."""

import dataclasses
import math
from typing import Any

from keras import ops

from gpt1_keras.types import Tensor


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What `gpt1 calibrate` learns on validation data, and presets hold.

    Args:
        temperature: logits are divided by it before the softmax (Guo et al., 2017, section 4.2). It
            never changes which logit is the largest. ValueError unless it is above 0.
        sure_threshold: a prediction with at least this probability is called sure; None for no
            threshold. ValueError unless it is from 0 to 1.
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
        """Returns the softmax at the temperature, float of the logits' shape."""
        return ops.softmax(logits if self.temperature == 1.0 else logits / self.temperature)

    def is_sure(self, probabilities: Tensor) -> Tensor:
        """Returns whether each largest probability reaches the threshold, bool `[batch]`."""
        return ops.max(probabilities, axis=-1) >= self.sure_threshold

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that differ from the defaults: presets need only these."""
        given = dataclasses.asdict(self)
        return {name: value for name, value in given.items() if value != FRESH_ARGUMENTS[name]}


UNCALIBRATED = Calibration()
# The calibration of a fresh head, as arguments of a task: that of the preset's own head does not
# fit it.
FRESH_ARGUMENTS = dataclasses.asdict(UNCALIBRATED)

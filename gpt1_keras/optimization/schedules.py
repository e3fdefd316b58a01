"""Learning-rate schedules: the paper's (section 4.1, and the released code), and WSD."""

from typing import Any

import keras
from keras import ops

from gpt1_keras.types import Tensor


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule over a number of updates, which `fit` may set when it knows the data."""

    def __init__(self, peak: float, total_steps: int | None = None) -> None:
        super().__init__()
        self.peak = peak
        self.total_steps = total_steps
        self.is_open = total_steps is None

    def __call__(self, step: int | Tensor) -> Tensor:
        """Returns the learning rate of an update, float32 scalar.

        Raises:
            ValueError: `total_steps` is not known.
        """
        if not self.total_steps:
            raise ValueError(
                f"{type(self).__name__} does not know how many updates it spans. Pass "
                "`total_steps` to it, or pass data of known size or `steps_per_epoch` to `fit`."
            )
        step = ops.minimum(ops.cast(step, "float32"), float(self.total_steps))
        return self.rate_at(step, self.total_steps)

    def rate_at(self, step: Tensor, total_steps: int) -> Tensor:
        """Returns the learning rate of an update, at most `total_steps`; float32 scalar."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "total_steps": None if self.is_open else self.total_steps}


@keras.saving.register_keras_serializable(package="gpt1_keras")
class FinetuningSchedule(Schedule):
    """Linear warm-up over the first 0.2 % of the updates, and linear decay to 0 over all.

    With x = update / total, the rate is peak (x / 0.002 if x < 0.002 else 1) (1 - x).

    Args:
        peak: highest rate, 6.25e-5 in the paper.
        total_steps: number of updates; None lets the model's `fit` set it.
        warmup: share of the updates to warm up over.
    """

    def __init__(
        self, peak: float = 6.25e-5, total_steps: int | None = None, warmup: float = 0.002
    ) -> None:
        super().__init__(peak, total_steps)
        self.warmup = warmup

    def rate_at(self, step: Tensor, total_steps: int) -> Tensor:
        x = step / total_steps
        return self.peak * ops.minimum(x / self.warmup, 1.0) * (1.0 - x)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "warmup": self.warmup}


@keras.saving.register_keras_serializable(package="gpt1_keras")
class PretrainingSchedule(Schedule):
    """Linear warm-up from 0 over the first updates, then a cosine to 0.

    Args:
        peak: highest rate, 2.5e-4 in the paper.
        total_steps: number of updates; None lets the model's `fit` set it.
        warmup_steps: number of updates to warm up over, 2,000 in the paper.
    """

    def __init__(
        self, peak: float = 2.5e-4, total_steps: int | None = None, warmup_steps: int = 2000
    ) -> None:
        super().__init__(peak, total_steps)
        self.warmup_steps = warmup_steps

    def rate_at(self, step: Tensor, total_steps: int) -> Tensor:
        warmup_steps = max(self.warmup_steps, 1)
        # A training may end before its warm-up does.
        decay_steps = max(total_steps - warmup_steps, 1)
        return keras.optimizers.schedules.CosineDecay(
            0.0, decay_steps, warmup_target=self.peak, warmup_steps=warmup_steps
        )(step)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "warmup_steps": self.warmup_steps}


@keras.saving.register_keras_serializable(package="gpt1_keras")
class WarmupStableDecaySchedule(Schedule):
    """Linear warm-up from 0, a constant rate, and a linear decay to 0 over the last updates.

    Known as WSD, or as a constant rate with cooldown (Hu et al. 2024, Haegele et al. 2024). The
    rate before the decay does not depend on `total_steps`. So a training can be continued, from the
    weights before its decay, as if it had not ended.

    Args:
        peak: the constant rate.
        total_steps: number of updates; None lets the model's `fit` set it.
        warmup_steps: number of updates to warm up over.
        decay_steps: number of updates to decay over.
    """

    def __init__(
        self,
        peak: float = 2.5e-4,
        total_steps: int | None = None,
        warmup_steps: int = 2000,
        decay_steps: int = 1000,
    ) -> None:
        super().__init__(peak, total_steps)
        self.warmup_steps = warmup_steps
        self.decay_steps = decay_steps

    def rate_at(self, step: Tensor, total_steps: int) -> Tensor:
        # If a training is shorter than both together, they meet below the peak.
        warmup = step / max(self.warmup_steps, 1)
        decay = (total_steps - step) / max(self.decay_steps, 1)
        return self.peak * ops.minimum(ops.minimum(warmup, decay), 1.0)

    def get_config(self) -> dict[str, Any]:
        steps = {"warmup_steps": self.warmup_steps, "decay_steps": self.decay_steps}
        return {**super().get_config(), **steps}

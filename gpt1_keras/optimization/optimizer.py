"""The paper's Adam, and its optimizers for pre-training and fine-tuning (section 4.1)."""

import re
import warnings
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.graph_execution import after
from gpt1_keras.optimization.schedules import (
    FinetuningSchedule,
    PretrainingSchedule,
    Schedule,
    WarmupStableDecaySchedule,
)
from gpt1_keras.types import Tensor
from gpt1_keras.upstream import AdamHooks, schedule_of, schedule_step

__all__ = [
    "FinetuningSchedule",
    "GPT1Adam",
    "PretrainingSchedule",
    "WarmupStableDecaySchedule",
    "finetuning_optimizer",
    "pretraining_optimizer",
]


_BLOCK = re.compile(r"(?:^|/)block_(\d+)/")
_EMBEDDING = re.compile(r"(?:^|/)embedding/")


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1Adam(AdamHooks, keras.optimizers.Adam):
    """Adam with the decoupled L2 regularisation of GPT-1.

    With lr_t = lr sqrt(1 - beta_2^t) / (1 - beta_1^t), an update is
    p -= lr_t (m / (sqrt(v) + epsilon) + weight_decay p). The decay is scaled by the bias-corrected
    rate, and applies to matrices and embeddings, but not to biases and gammas, nor to what
    `exclude_from_weight_decay` names.

    Args:
        learning_rate: a number or a schedule.
        weight_decay: 0.01 in the paper.
        epsilon: 1e-8 in the released code.
        layer_decay: factor of the rate for each step away from the head: the head has the whole
            rate, the last block `layer_decay` times the rate, the block before it `layer_decay **
            2`, and so on to the embeddings (Howard & Ruder 2018). 1, as in the paper, changes
            nothing.
        **kwargs: further arguments of `keras.optimizers.Adam`.

    Raises:
        ValueError: `layer_decay` is not in (0, 1]; or it is below 1, and no variable to train
            belongs to a block (`block_0`, `block_1`, ...).
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 6.25e-5,
        weight_decay: float = 0.01,
        epsilon: float = 1e-8,
        layer_decay: float = 1.0,
        **kwargs: Any,
    ) -> None:
        if not 0 < layer_decay <= 1:
            raise ValueError(f"layer_decay must be above 0 and at most 1. Received: {layer_decay}.")
        super().__init__(learning_rate, epsilon=epsilon, **kwargs)
        self.decoupled_decay = weight_decay
        self.layer_decay = layer_decay

    def build(self, variables: Sequence[keras.Variable]) -> None:
        super().build(variables)
        self._rate_factors = _rate_factors([each.path for each in variables], self.layer_decay)

    def clip_gradients(self, gradients: list[Tensor]) -> list[Tensor]:
        if keras.backend.backend() == "tensorflow" and self.global_clipnorm:
            # It passes over the memory once for the norm; Keras passes three times.
            return tf.clip_by_global_norm(gradients, self.global_clipnorm)[0]
        return super().clip_gradients(gradients)

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        if self.layer_decay < 1:
            learning_rate = learning_rate * self._rate_factors[self.index_of(variable)]
        if self.decoupled_decay and len(variable.shape) > 1 and self.decays(variable):
            step = ops.cast(self.iterations + 1, variable.dtype)
            corrected = (
                ops.cast(learning_rate, variable.dtype)
                * ops.sqrt(1 - ops.power(ops.cast(self.beta_2, variable.dtype), step))
                / (1 - ops.power(ops.cast(self.beta_1, variable.dtype), step))
            )
            # After the gradient is computed: earlier, the product would wait in memory for it.
            with after(gradient):
                self.assign_sub(variable, corrected * self.decoupled_decay * variable)
        if keras.backend.backend() == "tensorflow" and not self.amsgrad:
            self._fused_update(gradient, variable, learning_rate)
        else:
            super().update_step(gradient, variable, learning_rate)

    def _fused_update(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        """Updates by TensorFlow's kernel: one pass over the memory instead of a dozen."""
        first_moment, second_moment = self.moments_of(variable)
        step = ops.cast(self.iterations + 1, variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=first_moment.value.handle,
            v=second_moment.value.handle,
            beta1_power=ops.power(ops.cast(self.beta_1, variable.dtype), step),
            beta2_power=ops.power(ops.cast(self.beta_2, variable.dtype), step),
            lr=ops.cast(learning_rate, variable.dtype),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.cast(gradient, variable.dtype),
        )

    def get_config(self) -> dict[str, Any]:
        own = {"weight_decay": self.decoupled_decay, "layer_decay": self.layer_decay}
        return {**super().get_config(), **own}


def _rate_factors(paths: Sequence[str], layer_decay: float) -> list[float]:
    """Returns the factor of each variable's rate, by its path; empty if all are 1."""
    if layer_decay == 1:
        return []
    blocks = [int(match[1]) for match in map(_BLOCK.search, paths) if match]
    if not blocks:
        raise ValueError(
            f"layer_decay={layer_decay} is for a model of blocks, as GPT1Backbone has them. "
            f"Received variables such as {paths[:3]}."
        )
    return [layer_decay ** _steps_from_head(path, 1 + max(blocks)) for path in paths]


def _steps_from_head(path: str, blocks: int) -> int:
    """Returns 0 for the head, 1 for the last block, and so on; `blocks + 1` for the embeddings."""
    if match := _BLOCK.search(path):
        return blocks - int(match[1])
    return blocks + 1 if _EMBEDDING.search(path) else 0


def finetuning_optimizer(
    learning_rate: float = 6.25e-5, total_steps: int | None = None, layer_decay: float = 1.0
) -> GPT1Adam:
    """Returns the paper's optimizer for fine-tuning: gradients are clipped to norm 1.

    Args:
        learning_rate: highest rate.
        total_steps: number of updates; None lets the model's `fit` set it.
        layer_decay: as in `GPT1Adam`.
    """
    schedule = FinetuningSchedule(learning_rate, total_steps)
    return GPT1Adam(schedule, layer_decay=layer_decay, global_clipnorm=1.0)


def pretraining_optimizer(
    learning_rate: float = 2.5e-4,
    total_steps: int | None = None,
    warmup_steps: int = 2000,
    decay_steps: int | None = None,
    clip_norm: float | None = None,
) -> GPT1Adam:
    """Returns an optimizer for pre-training, by default the paper's.

    Args:
        learning_rate: highest rate.
        total_steps: number of updates; None lets the model's `fit` set it.
        warmup_steps: number of updates to warm up over.
        decay_steps: number of updates to decay over, after a constant rate; see
            `WarmupStableDecaySchedule`. None for the paper's cosine over all updates.
        clip_norm: norm to clip gradients to; None, as in the paper, for no clipping.
    """
    schedule: PretrainingSchedule | WarmupStableDecaySchedule
    if decay_steps is None:
        schedule = PretrainingSchedule(learning_rate, total_steps, warmup_steps)
    else:
        schedule = WarmupStableDecaySchedule(learning_rate, total_steps, warmup_steps, decay_steps)
    return GPT1Adam(schedule, global_clipnorm=clip_norm)


def open_schedule(optimizer: keras.optimizers.Optimizer) -> Any:
    """Returns an optimizer's schedule if `fit` has to set its length, and None otherwise."""
    schedule = schedule_of(_unwrapped(optimizer))
    return schedule if getattr(schedule, "is_open", False) else None


def stretch_schedule(optimizer: keras.optimizers.Optimizer, steps: int, epochs: int) -> bool:
    """Sets the length of an open schedule: the number of updates at the end of `fit`.

    It takes the steps of an epoch, negative if they are not known, and the epochs that follow.
    Returns whether the length has changed. Raises ValueError if the schedule is open, and the
    number of steps not known.
    """
    schedule = open_schedule(optimizer)
    if schedule is None:
        return False
    if steps < 0:
        raise ValueError(
            "The learning-rate schedule spans the whole training, but the dataset does not "
            "say how many batches it has. Pass `steps_per_epoch` to `fit`, or compile with "
            "`gpt1_keras.optimizer.finetuning_optimizer(total_steps=...)`."
        )
    before = schedule.total_steps
    schedule.total_steps = schedule_step(_unwrapped(optimizer)) + steps * epochs
    return schedule.total_steps != before


def warn_of_no_rate(optimizer: keras.optimizers.Optimizer, steps: int) -> None:
    """Warns if the rate is 0 in each of the next steps, negative if their number is not known."""
    optimizer = _unwrapped(optimizer)
    schedule, step = schedule_of(optimizer), schedule_step(optimizer)
    if not isinstance(schedule, Schedule) or steps == 0:
        return
    # A rate is 0 at step 0, where it warms up from, and from the last step on.
    if any(float(schedule(each)) for each in (step, step + 1)[: 1 if steps == 1 else 2]):
        return
    warnings.warn(
        "This training changes no weight, as its rate is always 0. "
        f"{type(schedule).__name__} is 0 at step 0, and from step {schedule.total_steps} on. "
        f"Received: {'data of unknown length' if steps < 0 else f'steps={steps}'}, from step "
        f"{step} on. Train for more epochs, or compile with a larger `total_steps` or with a "
        "constant rate, as gpt1_keras.optimizer.GPT1Adam(6.25e-5).",
        stacklevel=3,
    )


def check_sets_no_rate(optimizer: keras.optimizers.Optimizer, callbacks: Any) -> None:
    """Raises ValueError if one of the callbacks of `fit` sets a rate that a schedule sets."""
    schedule = schedule_of(_unwrapped(optimizer))
    if not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        return
    setters = keras.callbacks.ReduceLROnPlateau, keras.callbacks.LearningRateScheduler
    for callback in keras.tree.flatten(getattr(callbacks, "callbacks", callbacks)):
        if isinstance(callback, setters):
            raise ValueError(
                f"{type(callback).__name__} sets the learning rate, which the optimizer's "
                f"{type(schedule).__name__} sets too. Compile with a constant rate, as "
                "gpt1_keras.optimizer.GPT1Adam(6.25e-5)."
            )


def check_dtypes(variables: Sequence[keras.Variable]) -> None:
    """Warns of weights in bfloat16, and raises ValueError for weights in float16."""
    dtypes = {variable.dtype for variable in variables}
    if "bfloat16" in dtypes:
        warnings.warn(
            "Weights in bfloat16 have 8 bits, and lose updates of less than about 1/256 of a "
            "weight: all updates at fine-tuning's rates. Build the backbone with "
            "dtype='mixed_bfloat16', whose weights are float32.",
            stacklevel=3,
        )
    if "float16" in dtypes:
        raise ValueError(
            "Weights in float16 cannot be trained: Adam's epsilon rounds to 0 there, and "
            "updates become NaN. Build the backbone with dtype='mixed_float16'. Received: "
            "dtype='float16'."
        )


def _unwrapped(optimizer: Any) -> Any:
    """Returns the optimizer itself: in float16, Keras wraps it in one that scales the loss."""
    return getattr(optimizer, "inner_optimizer", optimizer)

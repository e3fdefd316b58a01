"""The paper's Adam, and its optimizers for pre-training and fine-tuning (section 4.1)."""

from typing import Any

import keras
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.custom_gradients.execution_order import after
from gpt1_keras.optimization.keras_internals import AdamInternals
from gpt1_keras.optimization.schedules import FinetuningSchedule, PretrainingSchedule
from gpt1_keras.types import Tensor

__all__ = [
    "FinetuningSchedule",
    "GPT1Adam",
    "PretrainingSchedule",
    "finetuning_optimizer",
    "pretraining_optimizer",
]


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1Adam(AdamInternals, keras.optimizers.Adam):
    """Adam with the decoupled L2 regularisation of GPT-1.

    With lr_t = lr sqrt(1 - beta_2^t) / (1 - beta_1^t), an update is
    p -= lr_t (m / (sqrt(v) + epsilon) + weight_decay p). The decay is scaled by the bias-corrected
    rate, and applies to matrices and embeddings, but not to biases and gammas.

    Args:
        learning_rate: a number or a schedule.
        weight_decay: 0.01 in the paper.
        epsilon: 1e-8 in the released code.
        **kwargs: further arguments of `keras.optimizers.Adam`.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 6.25e-5,
        weight_decay: float = 0.01,
        epsilon: float = 1e-8,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, epsilon=epsilon, **kwargs)
        self.decoupled_decay = weight_decay

    def clip_gradients(self, gradients: list[Tensor]) -> list[Tensor]:
        if keras.backend.backend() == "tensorflow" and self.global_clipnorm:
            # Its norm takes one pass over the memory, where Keras's squares take three.
            return tf.clip_by_global_norm(gradients, self.global_clipnorm)[0]
        return super().clip_gradients(gradients)

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        if self.decoupled_decay and len(variable.shape) > 1:
            step = ops.cast(self.iterations + 1, variable.dtype)
            corrected = (
                ops.cast(learning_rate, variable.dtype)
                * ops.sqrt(1 - ops.power(ops.cast(self.beta_2, variable.dtype), step))
                / (1 - ops.power(ops.cast(self.beta_1, variable.dtype), step))
            )
            # Not before the gradient is computed; else the product would wait in memory for it.
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
        return {**super().get_config(), "weight_decay": self.decoupled_decay}


def finetuning_optimizer(
    learning_rate: float = 6.25e-5, total_steps: int | None = None
) -> GPT1Adam:
    """Returns the paper's optimizer for fine-tuning: gradients are clipped to norm 1."""
    return GPT1Adam(FinetuningSchedule(learning_rate, total_steps), global_clipnorm=1.0)


def pretraining_optimizer(
    learning_rate: float = 2.5e-4, total_steps: int | None = None, warmup_steps: int = 2000
) -> GPT1Adam:
    """Returns the paper's optimizer for pre-training: gradients are not clipped."""
    return GPT1Adam(PretrainingSchedule(learning_rate, total_steps, warmup_steps))

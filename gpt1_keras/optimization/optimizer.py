"""The paper's Adam and its learning-rate schedules (section 4.1, and the released code)."""

import math

import keras
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.custom_gradients.execution_order import after


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1Adam(keras.optimizers.Adam):
    """Adam with the decoupled L2 regularisation of GPT-1.

    With lr_t = lr sqrt(1 - beta_2^t) / (1 - beta_1^t), a step is
    p -= lr_t (m / (sqrt(v) + epsilon) + weight_decay p). The decay is scaled by the bias-corrected
    rate, and falls on matrices and embeddings, not on biases and gains.

    Args:
        learning_rate: float or schedule.
        weight_decay: float, 0.01 in the paper.
        **kwargs: further arguments of `keras.optimizers.Adam`.
    """

    def __init__(self, learning_rate=6.25e-5, weight_decay=0.01, epsilon=1e-8, **kwargs):
        super().__init__(learning_rate, epsilon=epsilon, **kwargs)
        self.decoupled_decay = weight_decay

    def _clip_gradients(self, grads):
        if keras.backend.backend() == "tensorflow" and self.global_clipnorm:
            # Its norm takes one pass over the memory, where Keras's squares take three.
            return tf.clip_by_global_norm(grads, self.global_clipnorm)[0]
        return super()._clip_gradients(grads)

    def update_step(self, gradient, variable, learning_rate):
        if self.decoupled_decay and len(variable.shape) > 1:
            step = ops.cast(self.iterations + 1, variable.dtype)
            corrected = (
                ops.cast(learning_rate, variable.dtype)
                * ops.sqrt(1 - ops.power(ops.cast(self.beta_2, variable.dtype), step))
                / (1 - ops.power(ops.cast(self.beta_1, variable.dtype), step))
            )
            # Not before the gradient is there: else it would lie in memory all along.
            with after(gradient):
                self.assign_sub(variable, corrected * self.decoupled_decay * variable)
        if keras.backend.backend() == "tensorflow" and not self.amsgrad:
            self._fused_update(gradient, variable, learning_rate)
        else:
            super().update_step(gradient, variable, learning_rate)

    def _fused_update(self, gradient, variable, learning_rate):
        """TensorFlow's kernel: one pass over the memory, where Keras's operations take a dozen."""
        index = self._get_variable_index(variable)
        step = ops.cast(self.iterations + 1, variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=ops.power(ops.cast(self.beta_1, variable.dtype), step),
            beta2_power=ops.power(ops.cast(self.beta_2, variable.dtype), step),
            lr=ops.cast(learning_rate, variable.dtype),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.cast(gradient, variable.dtype),
        )

    def get_config(self):
        return {**super().get_config(), "weight_decay": self.decoupled_decay}


class _Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule over a number of updates that may be set later, when the data is known."""

    def __init__(self, peak, total_steps=None):
        super().__init__()
        self.peak = peak
        self.total_steps = total_steps
        self.is_open = total_steps is None

    def _progress(self, step):
        if not self.total_steps:
            raise ValueError(
                f"{type(self).__name__} does not know how many updates it spans. Give it "
                "`total_steps`, or give `fit` data of known size or `steps_per_epoch`."
            )
        return ops.minimum(ops.cast(step, "float32") / self.total_steps, 1.0)

    def get_config(self):
        return {"peak": self.peak, "total_steps": None if self.is_open else self.total_steps}


@keras.saving.register_keras_serializable(package="gpt1_keras")
class FinetuningSchedule(_Schedule):
    """Linear warm-up over the first 0.2 % of the updates, and linear decay to 0 over all.

    With x = update / total, the rate is peak (x / 0.002 if x < 0.002 else 1) (1 - x).

    Args:
        peak: float, 6.25e-5 in the paper.
        total_steps: int, the updates in all; `None` lets the model's `fit` set it.
        warmup: float, the share of updates to warm up over.
    """

    def __init__(self, peak=6.25e-5, total_steps=None, warmup=0.002):
        super().__init__(peak, total_steps)
        self.warmup = warmup

    def __call__(self, step):
        x = self._progress(step)
        return self.peak * ops.minimum(x / self.warmup, 1.0) * (1.0 - x)

    def get_config(self):
        return {**super().get_config(), "warmup": self.warmup}


@keras.saving.register_keras_serializable(package="gpt1_keras")
class PretrainingSchedule(_Schedule):
    """Linear warm-up from 0 over the first updates, then a cosine to 0.

    Args:
        peak: float, 2.5e-4 in the paper.
        total_steps: int, the updates in all; `None` lets the model's `fit` set it.
        warmup_steps: int, 2,000 in the paper.
    """

    def __init__(self, peak=2.5e-4, total_steps=None, warmup_steps=2000):
        super().__init__(peak, total_steps)
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        x = self._progress(step)
        warmup = max(self.warmup_steps, 1) / self.total_steps
        decay = ops.clip((x - warmup) / max(1.0 - warmup, 1e-9), 0.0, 1.0)
        cosine = 0.5 * (1.0 + ops.cos(math.pi * decay))
        return self.peak * ops.where(x < warmup, x / warmup, cosine)

    def get_config(self):
        return {**super().get_config(), "warmup_steps": self.warmup_steps}


def finetuning_optimizer(learning_rate=6.25e-5, total_steps=None):
    """The paper's fine-tuning optimizer: Adam, its schedule, gradients clipped to norm 1."""
    return GPT1Adam(FinetuningSchedule(learning_rate, total_steps), global_clipnorm=1.0)


def pretraining_optimizer(learning_rate=2.5e-4, total_steps=None, warmup_steps=2000):
    """The paper's pre-training optimizer: Adam with warm-up and cosine, gradients unclipped."""
    return GPT1Adam(PretrainingSchedule(learning_rate, total_steps, warmup_steps))

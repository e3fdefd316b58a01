"""The training step for Keras's current backend, and the mixin by which Keras calls it."""

from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING or keras.backend.backend() == "tensorflow":
    from gpt1_keras.optimization.tensorflow_step import TensorFlowHooks as TaskHooks
    from gpt1_keras.optimization.tensorflow_step import TensorFlowStep as TrainingStep
elif keras.backend.backend() == "jax":
    from gpt1_keras.optimization.jax_step import JaxHooks as TaskHooks
    from gpt1_keras.optimization.jax_step import JaxStep as TrainingStep
elif keras.backend.backend() == "torch":
    from gpt1_keras.optimization.torch_step import TorchHooks as TaskHooks
    from gpt1_keras.optimization.torch_step import TorchStep as TrainingStep
else:
    raise ImportError(
        "gpt1_keras runs on Keras's backends TensorFlow, JAX and torch. Received: KERAS_BACKEND="
        f"{keras.backend.backend()}."
    )

__all__ = ["TaskHooks", "training_step"]


def training_step(task: Any, accumulation_steps: int = 1) -> TrainingStep:
    """Returns what updates the weights of a task, which inherits from `TaskHooks`.

    The task's `forward_loss` and `loss_count` say what the loss is. A batch is computed in
    `accumulation_steps` slices, whose gradients are added up, so that a large one fits into a small
    memory. Raises ValueError if they are below 1, or above 1 on torch.
    """
    if accumulation_steps < 1:
        raise ValueError(
            f"`accumulation_steps` must be at least 1. Received: {accumulation_steps}."
        )
    return TrainingStep(task, accumulation_steps)

"""The training step for Keras's current backend."""

from typing import Any

import keras

if keras.backend.backend() == "tensorflow":
    from gpt1_keras.optimization.tensorflow_step import TensorFlowStep
elif keras.backend.backend() == "jax":
    from gpt1_keras.optimization.jax_step import JaxStep
elif keras.backend.backend() == "torch":
    from gpt1_keras.optimization.torch_step import TorchStep
else:
    raise ImportError(
        "gpt1_keras runs on Keras's backends TensorFlow, JAX and torch. Received: KERAS_BACKEND="
        f"{keras.backend.backend()}."
    )


def training_step(task: Any, accumulation_steps: int = 1) -> Any:
    """Returns what updates a task's weights after a batch; `gpt1_keras.upstream` has Keras call it.

    The task's `forward_loss` and `loss_count` say what the loss is. A batch is computed in
    `accumulation_steps` slices, whose gradients are added up, so that a large one fits into a small
    memory. Raises ValueError if they are below 1, or above 1 on torch.
    """
    if accumulation_steps < 1:
        raise ValueError(
            f"`accumulation_steps` must be at least 1. Received: {accumulation_steps}."
        )
    if keras.backend.backend() == "tensorflow":
        return TensorFlowStep(task, accumulation_steps)
    if keras.backend.backend() == "jax":
        return JaxStep(task, accumulation_steps)
    if accumulation_steps != 1:
        raise ValueError(
            "Accumulation needs Keras's TensorFlow or JAX backend. Received: "
            f"accumulation_steps={accumulation_steps} on torch."
        )
    return TorchStep(task)

"""The training step on torch: Keras's own, with the task's loss."""

from typing import Any

import keras
import torch
from keras import tree

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.types import Tensor
from gpt1_keras.upstream import ModelHooks, specs_of, update_loss_metric


class TorchStep:
    """Computes the loss in one slice and on one device."""

    def __init__(self, task: Any, accumulation_steps: int) -> None:
        if accumulation_steps != 1:
            raise ValueError(
                "Accumulation needs Keras's TensorFlow or JAX backend. Received: "
                f"accumulation_steps={accumulation_steps} on torch."
            )
        self._task = task

    def train(self, data: Any) -> dict[str, Tensor]:
        """Updates the weights after a batch, and returns the metrics."""
        task = self._task
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        task.zero_grad()
        outputs, loss = task.forward_loss(x, y, sample_weight, training=True)
        update_loss_metric(task, loss, task.loss_count(x, y, sample_weight))
        task.optimizer.scale_loss(loss).backward()
        variables = task.trainable_variables
        with torch.no_grad():
            task.optimizer.apply([variable.value.grad for variable in variables], variables)
        return task.compute_metrics(x, y, outputs, sample_weight)

    def evaluate(self, data: Any) -> dict[str, Tensor]:
        """Returns the metrics after a batch."""
        task = self._task
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        outputs, loss = task.forward_loss(x, y, sample_weight, training=False)
        update_loss_metric(task, loss, task.loss_count(x, y, sample_weight))
        return task.compute_metrics(x, y, outputs, sample_weight)


class TorchHooks(ModelHooks):
    """A mixin for tasks: Keras calls it, and `training_step` does the work."""

    training_step: TorchStep

    def train_step(self, data: Any) -> dict[str, Tensor]:
        return self.training_step.train(data)

    def test_step(self, data: Any) -> dict[str, Tensor]:
        return self.training_step.evaluate(data)

    def data_to_build_by(self, iterator: Any, batch: Any) -> tuple[Any, Any]:
        if batch is None and (specs := specs_of(iterator)) is not None:
            # Of an unknown size, Keras would try one that may be longer than the context.
            batch = tree.map_structure(
                lambda spec: tf.TensorSpec([size or 1 for size in spec.shape], spec.dtype), specs
            )
        return iterator, batch

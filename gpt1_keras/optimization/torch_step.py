"""The training step on torch: Keras's own, with the task's loss."""

from typing import Any

import keras
import torch

from gpt1_keras.types import Tensor
from gpt1_keras.upstream import update_loss_metric


class TorchStep:
    """Computes the loss in one slice and on one device."""

    def __init__(self, task: Any) -> None:
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

"""The training step on JAX, for one device: Keras's own, with the task's loss and accumulation."""

from typing import Any

import jax
import keras
from keras import ops, tree

from gpt1_keras.optimization.objective import map_tensors, stateless_loss
from gpt1_keras.types import Tensor
from gpt1_keras.upstream import ModelHooks, specs_of, update_loss_metric


class JaxStep:
    """Computes a batch in slices, one after the other."""

    def __init__(self, task: Any, accumulation_steps: int) -> None:
        self._task = task
        self.accumulation_steps = accumulation_steps

    def loss_and_updates(
        self,
        trainable: list[Tensor],
        non_trainable: list[Tensor],
        metrics_variables: list[Tensor],
        x: Any,
        y: Any,
        sample_weight: Any,
        training: bool = False,
        optimizer_variables: Any = None,
    ) -> tuple[Tensor, tuple[Tensor, Any, list[Tensor], list[Tensor]]]:
        """Computes the loss as a pure function, as Keras's `compute_loss_and_updates` does.

        Returns `(scaled loss, (loss, outputs, non-trainable values, metrics' values))`.
        """
        loss, outputs, state = stateless_loss(
            self._task, trainable, non_trainable, (x, y, sample_weight), training
        )
        scaled_loss = loss
        if training:
            mapping = zip(self._task.optimizer.variables, optimizer_variables)
            with keras.StatelessScope(mapping):
                scaled_loss = self._task.optimizer.scale_loss(loss)
        return scaled_loss, (loss, outputs, state, metrics_variables)

    def update_metrics(
        self, metrics_variables: list[Tensor], loss: Tensor, data: tuple, outputs: Any
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Returns `(logs, new values of the metrics' variables)` after a batch."""
        task = self._task
        x, y, sample_weight = data
        mapping = zip(task.metrics_variables, metrics_variables)
        with keras.StatelessScope(mapping) as scope:
            update_loss_metric(task, loss, task.loss_count(x, y, sample_weight))
            logs = task.compute_metrics(x, y, outputs, sample_weight)
        return logs, [scope.get_current_value(variable) for variable in task.metrics_variables]

    def train(self, state: tuple, data: Any) -> tuple[dict[str, Tensor], tuple]:
        """Returns `(logs, new state)` after a batch, computed in slices."""
        data = keras.utils.unpack_x_y_sample_weight(data)
        count = self._task.loss_count(*data)
        trainable, non_trainable, optimizer_variables, metrics_variables = state

        def share_of_loss(trainable: list[Tensor], non_trainable: list[Tensor], part: Any) -> Any:
            x, y, sample_weight = part
            scaled_loss, (loss, outputs, non_trainable, _) = self.loss_and_updates(
                *(trainable, non_trainable, metrics_variables),
                *(x, y, sample_weight),
                training=True,
                optimizer_variables=optimizer_variables,
            )
            share = self._task.loss_count(x, y, sample_weight) / count
            return share * scaled_loss, (share * loss, outputs, non_trainable)

        def add_slice(carried: tuple, part: tuple) -> tuple[tuple, Any]:
            loss, gradients, non_trainable = carried
            gradients_of = jax.value_and_grad(share_of_loss, has_aux=True)
            (_, results), part_gradients = gradients_of(trainable, non_trainable, part)
            part_loss, outputs, non_trainable = results
            gradients = [a + b for a, b in zip(gradients, part_gradients)]
            return (loss + part_loss, gradients, non_trainable), outputs

        start = (ops.zeros(()), [ops.zeros_like(value) for value in trainable], non_trainable)
        slices = map_tensors(self._in_slices, data)
        (loss, gradients, non_trainable), outputs = jax.lax.scan(add_slice, start, slices)
        outputs = tree.map_structure(lambda t: ops.reshape(t, (-1, *t.shape[2:])), outputs)
        trainable, optimizer_variables = self._task.optimizer.stateless_apply(
            optimizer_variables, gradients, trainable
        )
        logs, metrics_variables = self.update_metrics(metrics_variables, loss, data, outputs)
        return logs, (trainable, non_trainable, optimizer_variables, metrics_variables)

    def _in_slices(self, tensor: Tensor) -> Tensor:
        """Reshapes `[batch, ...]` to `[slices, batch / slices, ...]`."""
        if tensor.shape[0] % self.accumulation_steps:
            raise ValueError(
                "On the JAX backend, `accumulation_steps` must divide the batch size. Received: "
                f"accumulation_steps={self.accumulation_steps}, a batch of {tensor.shape[0]}."
            )
        return ops.reshape(tensor, (self.accumulation_steps, -1, *tensor.shape[1:]))


class JaxHooks(ModelHooks):
    """A mixin for tasks: Keras calls it, and `training_step` does the work."""

    training_step: JaxStep

    def train_step(self, state: tuple, data: Any) -> tuple[dict[str, Tensor], tuple]:
        if self.training_step.accumulation_steps == 1:
            return super().train_step(state, data)
        return self.training_step.train(state, data)

    def compute_loss_and_updates(self, *args: Any, **kwargs: Any) -> Any:
        return self.training_step.loss_and_updates(*args, **kwargs)

    def update_metrics_variables(
        self, values: list[Tensor], loss: Tensor, x: Any, y: Any, outputs: Any, sample_weight: Any
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        return self.training_step.update_metrics(values, loss, (x, y, sample_weight), outputs)

    def data_to_build_by(self, iterator: Any, batch: Any) -> tuple[Any, Any]:
        return iterator, batch or specs_of(iterator)

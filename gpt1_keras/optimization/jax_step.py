"""The training step on JAX, for one device: Keras's own, with our loss and accumulation."""

from typing import Any

import jax
import keras
from keras import ops, tree

from gpt1_keras.optimization.stateless_loss import StatelessLoss, map_tensors
from gpt1_keras.types import Tensor
from gpt1_keras.upstream import JaxTrainerInternals


class JaxStep(StatelessLoss, JaxTrainerInternals):
    """Computes a batch in slices, one after the other."""

    def train_step(self, state: tuple, data: Any) -> tuple[dict[str, Tensor], tuple]:
        if self.accumulation_steps == 1:
            return super().train_step(state, data)
        data = keras.utils.unpack_x_y_sample_weight(data)
        count = self.loss_count(*data)
        trainable, non_trainable, optimizer_variables, metrics_variables = state

        def share_of_loss(trainable: list[Tensor], non_trainable: list[Tensor], part: Any) -> Any:
            x, y, sample_weight = part
            scaled_loss, (loss, outputs, non_trainable, _) = self.compute_loss_and_updates(
                trainable,
                non_trainable,
                metrics_variables,
                x,
                y,
                sample_weight,
                training=True,
                optimizer_variables=optimizer_variables,
            )
            share = self.loss_count(x, y, sample_weight) / count
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
        trainable, optimizer_variables = self.optimizer.stateless_apply(
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

"""The loss as a pure function of the variables' values, which both training steps build on."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops, tree

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.types import Tensor
from gpt1_keras.upstream import TrainerInternals


class StatelessLoss(TrainerInternals):
    """Mixed into `keras.Model`, on any backend."""

    accumulation_steps = 1

    def compile(self, *args: Any, accumulation_steps: int = 1, **kwargs: Any) -> None:
        """As `keras.Model.compile`; each batch is computed in `accumulation_steps` slices."""
        if accumulation_steps < 1:
            raise ValueError(
                f"`accumulation_steps` must be at least 1. Received: {accumulation_steps}."
            )
        self.accumulation_steps = accumulation_steps
        super().compile(*args, **kwargs)

    def forward_loss(
        self, x: Any, y: Any, sample_weight: Any, training: bool
    ) -> tuple[Any, Tensor]:
        """Computes the outputs and the mean loss of a batch.

        Args:
            x: inputs, as in `keras.Model.compute_loss`.
            y: labels, likewise.
            sample_weight: weights, likewise.
            training: whether it is a training step.

        Returns:
            `(outputs, loss)`: outputs as `compute_metrics` takes them, and a scalar.
        """
        outputs = self(x, training=training)
        loss = self.compute_loss(x, y, outputs, sample_weight, training=training)
        if keras.backend.backend() == "tensorflow":
            loss *= tf.distribute.get_strategy().num_replicas_in_sync  # which Keras divides by
        return outputs, loss

    def loss_count(self, x: Any, y: Any, sample_weight: Any) -> Tensor:
        """Returns how many items `forward_loss` is the mean of, float32 scalar: the examples."""
        return ops.cast(ops.shape(tree.flatten(x)[0])[0], "float32")

    def stateless_loss(
        self,
        trainable: list[Tensor],
        non_trainable: list[Tensor],
        x: Any,
        y: Any,
        sample_weight: Any,
        training: bool = True,
    ) -> tuple[Tensor, Any, list[Tensor]]:
        """Computes `forward_loss` at given values of the variables.

        Returns:
            `(loss, outputs, new values of the non-trainable variables)`.
        """
        variables = [*self.trainable_variables, *self.non_trainable_variables]
        mapping = zip(variables, [*trainable, *non_trainable])
        with keras.StatelessScope(mapping, collect_losses=True) as scope:
            outputs, loss = self.forward_loss(x, y, sample_weight, training)
        state = [scope.get_current_value(v) for v in self.non_trainable_variables]
        return loss, outputs, state


def map_tensors(function: Callable[[Tensor], Tensor], data: Any) -> Any:
    """Applies a function to each tensor of `(x, y, sample_weight)`; what is missing stays None."""
    return tree.map_structure(lambda t: None if t is None else function(t), data)

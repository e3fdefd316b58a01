"""The training step on TensorFlow, under any `tf.distribute` strategy.

Under a strategy, Keras compiles no step, and clips each replica's gradient before it sums them.
`TensorFlowStep` mends both behind plain `model.fit`.
"""

from typing import Any

import keras
from keras import tree

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.optimization.stateless_loss import StatelessLoss, map_tensors
from gpt1_keras.types import Tensor
from gpt1_keras.upstream import TensorFlowTrainerInternals

_SEED_STRIDE = 0x9E3779B9  # odd and irregular, so that no replica repeats another's dropout


class TensorFlowStep(StatelessLoss, TensorFlowTrainerInternals):
    """Compiles the loss inside each replica, averages gradients over all, and only then clips."""

    def train_step(self, data: Any) -> dict[str, Tensor]:
        data = keras.utils.unpack_x_y_sample_weight(data)
        context = tf.distribute.get_replica_context()
        all_reduce, total = context.all_reduce, tf.distribute.ReduceOp.SUM
        count = all_reduce(total, self.loss_count(*data))

        values = [tf.convert_to_tensor(variable) for variable in self.trainable_variables]
        replica = tf.cast(context.replica_id_in_sync_group, "int64")
        state = self._shift_seeds(replica, self.non_trainable_variables)
        scale = tf.convert_to_tensor(self.optimizer.scale_loss(1.0))
        loss, outputs = tf.constant(0.0), []
        gradients: list[Tensor] = []
        for index in range(self.accumulation_steps):
            # Each slice waits for the one before; all at once would need all the memory.
            with tf.control_dependencies(gradients):
                part = self._slice(data, index)
            share = tf.math.divide_no_nan(self.loss_count(*part), count)
            part_loss, part_gradients, part_outputs, state = self._compiled_gradients(
                values, state, self._fill_if_empty(part), share, scale
            )
            loss += part_loss
            if gradients:
                part_gradients = [a + b for a, b in zip(gradients, part_gradients)]
            gradients = part_gradients
            outputs.append(part_outputs)
        state = self._shift_seeds(-replica, state)
        for variable, value in zip(self.non_trainable_variables, state):
            variable.assign(value)

        loss, gradients = all_reduce(total, loss), all_reduce(total, gradients)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.update_loss_metric(loss, count)
        outputs = tree.map_structure(lambda *slices: tf.concat(slices, axis=0), *outputs)
        return self._update_metrics(data, outputs)

    def test_step(self, data: Any) -> dict[str, Tensor]:
        x, y, sample_weight = data = keras.utils.unpack_x_y_sample_weight(data)
        outputs, loss = self.forward_loss(x, y, sample_weight, training=False)
        count = self.loss_count(x, y, sample_weight)
        # A replica may get nothing of the last batch, and the mean of nothing is NaN.
        self.update_loss_metric(tf.where(count > 0, loss, 0.0), count)
        return self._update_metrics(data, outputs)

    def _gradients(
        self,
        values: list[Tensor],
        state: list[Tensor],
        data: tuple[Any, Any, Any],
        share: Tensor,
        scale: Tensor,
    ) -> tuple[Tensor, list[Tensor], Any, list[Tensor]]:
        """Computes the loss and the gradients of a slice of the batch; XLA compiles this.

        Args:
            values: the trainable variables' values.
            state: the other variables' values.
            data: `(x, y, sample_weight)`.
            share: float32 scalar, the slice's share of the batch's mean.
            scale: float32 scalar, the loss scale of float16.

        Returns:
            `(loss, scaled gradients, outputs, state)`; loss and gradients are the slice's share.
        """
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss, outputs, state = self.stateless_loss(values, state, *data)
            loss = share * tf.cast(loss, "float32")
            scaled_loss = scale * loss
        gradients = tape.gradient(scaled_loss, values, unconnected_gradients="zero")
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients], outputs, state

    def _slice(self, data: Any, index: int) -> Any:
        """Returns one of the batch's slices, which may be empty."""
        if self.accumulation_steps == 1:
            return data

        def take(tensor: Tensor) -> Tensor:
            rows = tf.shape(tensor)[0]
            start = index * rows // self.accumulation_steps
            return tensor[start : (index + 1) * rows // self.accumulation_steps]

        return map_tensors(take, data)

    def _fill_if_empty(self, data: Any) -> Any:
        """Returns the data, or one row of zeros where a slice or a replica gets no rows."""
        if self.accumulation_steps == self.distribute_strategy.num_replicas_in_sync == 1:
            return data

        def fill(tensor: Tensor) -> Tensor:
            is_empty = tf.cast(tf.shape(tensor)[0] == 0, "int32")
            zeros = tf.zeros([is_empty, *tf.unstack(tf.shape(tensor)[1:])], tensor.dtype)
            filled = tf.concat([tensor, zeros], axis=0)
            return tf.ensure_shape(filled, [None, *tensor.shape[1:]])

        return map_tensors(fill, data)

    def _shift_seeds(self, replica: Tensor, state: list[Any]) -> list[Tensor]:
        """Gives each replica its own dropout; with `-replica`, takes it back."""
        shift = replica * tf.constant([_SEED_STRIDE, 0], "int64")
        return [
            tf.convert_to_tensor(value) + shift
            if variable.name == "seed_generator_state"
            else tf.convert_to_tensor(value)
            for variable, value in zip(self.non_trainable_variables, state)
        ]

    def _update_metrics(self, data: tuple[Any, Any, Any], outputs: Any) -> dict[str, Tensor]:
        """Updates the metrics, and returns their results."""
        x, y, sample_weight = data
        # Without the row that may have been filled in.
        rows = tf.shape(tree.flatten(x)[0])[0]
        outputs = tree.map_structure(lambda tensor: tensor[:rows], outputs)
        logs = self.compute_metrics(x, y, outputs, sample_weight)
        if isinstance(self.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy):
            # Keras takes the mean of the workers over the first axis.
            logs = {name: tf.reshape(value, [1]) for name, value in logs.items()}
        return logs

    def make_train_function(self, force: bool = False) -> None:
        if self.train_function is None or force:
            self._compiled_gradients = self._gradients
            if not self.run_eagerly:
                self._compiled_gradients = tf.function(
                    self._gradients, jit_compile=self.jit_compile, autograph=False
                )
            with self.without_outer_jit():
                super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> None:
        with self.without_outer_jit():
            super().make_test_function(force)

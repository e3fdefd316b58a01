"""The training step on TensorFlow, under any `tf.distribute` strategy.

Under a strategy, Keras does not compile the step, and it clips each replica's gradient before it
sums them. `TensorFlowStep` corrects both inside `fit`; `TensorFlowHooks` has Keras call it.
"""

from typing import Any

import keras
from keras import tree

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.graph_execution import gradients_held_by_graph
from gpt1_keras.optimization.objective import map_tensors, stateless_loss
from gpt1_keras.types import Tensor
from gpt1_keras.upstream import (
    ModelHooks,
    has_strategy,
    specs_of,
    take_summed_gradients,
    update_loss_metric,
    without_outer_jit,
)

_SEED_STRIDE = 0x9E3779B9  # odd and irregular, so that no replica repeats another's dropout


class TensorFlowStep:
    """Compiles the loss inside each replica, averages gradients over all, and only then clips."""

    def __init__(self, task: Any, accumulation_steps: int) -> None:
        self._task = task
        self._accumulation_steps = accumulation_steps
        self._compiled_gradients = self._gradients

    def compile(self) -> None:
        """Compiles the gradients, by XLA if the task says so. Call it before the first step."""
        self._compiled_gradients = self._gradients
        if not self._task.run_eagerly:
            self._compiled_gradients = tf.function(
                self._gradients, jit_compile=self._task.jit_compile, autograph=False
            )

    def train(self, data: Any) -> dict[str, Tensor]:
        """Updates the weights after a replica's share of a batch, and returns the metrics."""
        task = self._task
        data = keras.utils.unpack_x_y_sample_weight(data)
        context = tf.distribute.get_replica_context()
        count = _sum_of_replicas(task.loss_count(*data))

        values = [tf.convert_to_tensor(variable) for variable in task.trainable_variables]
        replica = tf.cast(context.replica_id_in_sync_group, "int64")
        state = self._shift_seeds(replica, task.non_trainable_variables)
        scale = tf.convert_to_tensor(task.optimizer.scale_loss(1.0))
        loss, outputs = tf.constant(0.0), []
        gradients: list[Tensor] = []
        for index in range(self._accumulation_steps):
            # Each slice waits for the one before: all at once would need more memory.
            with tf.control_dependencies(gradients):
                part = self._slice(data, index)
            share = tf.math.divide_no_nan(task.loss_count(*part), count)
            part_loss, part_gradients, part_outputs, state = self._compiled_gradients(
                values, state, self._fill_if_empty(part), share, scale
            )
            loss += part_loss
            if gradients:
                part_gradients = [a + b for a, b in zip(gradients, part_gradients)]
            gradients = part_gradients
            outputs.append(part_outputs)
        state = self._shift_seeds(-replica, state)
        for variable, value in zip(task.non_trainable_variables, state):
            variable.assign(value)

        loss, gradients = _sum_of_replicas(loss), _sum_of_replicas(gradients)
        task.optimizer.apply(gradients, task.trainable_variables)
        update_loss_metric(task, loss, count)
        outputs = tree.map_structure(lambda *slices: tf.concat(slices, axis=0), *outputs)
        return self._update_metrics(data, outputs)

    def evaluate(self, data: Any) -> dict[str, Tensor]:
        """Returns the metrics after a replica's share of a batch."""
        data = keras.utils.unpack_x_y_sample_weight(data)
        outputs, loss = self._task.forward_loss(*data, training=False)
        count = self._task.loss_count(*data)
        # A replica may get no example of the last batch, and then its mean loss is NaN.
        update_loss_metric(self._task, tf.where(count > 0, loss, 0.0), count)
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
            values, state: the values of the trainable and of the other variables.
            data: `(x, y, sample_weight)`.
            share: float32 scalar, the slice's share of the batch's mean.
            scale: float32 scalar, the loss scale of float16.

        Returns `(loss, scaled gradients, outputs, state)`; the first two are the slice's share.
        """
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss, outputs, state = stateless_loss(self._task, values, state, data)
            loss = share * tf.cast(loss, "float32")
            scaled_loss = scale * loss
        gradients = tape.gradient(scaled_loss, values, unconnected_gradients="zero")
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients], outputs, state

    def _slice(self, data: Any, index: int) -> Any:
        """Returns one of the batch's slices, which may be empty."""
        if self._accumulation_steps == 1:
            return data

        def take(tensor: Tensor) -> Tensor:
            rows = tf.shape(tensor)[0]
            start = index * rows // self._accumulation_steps
            return tensor[start : (index + 1) * rows // self._accumulation_steps]

        return map_tensors(take, data)

    def _fill_if_empty(self, data: Any) -> Any:
        """Returns the data, or one row that counts for nothing where there is none.

        A slice or a replica may get none. The row has a token, as models take no sequence without.
        """
        if self._accumulation_steps == self._task.distribute_strategy.num_replicas_in_sync == 1:
            return data

        def fill(tensor: Tensor, value: int) -> Tensor:
            is_empty = tf.cast(tf.shape(tensor)[0] == 0, "int32")
            row = tf.fill(
                [is_empty, *tf.unstack(tf.shape(tensor)[1:])], tf.cast(value, tensor.dtype)
            )
            filled = tf.concat([tensor, row], axis=0)
            return tf.ensure_shape(filled, [None, *tensor.shape[1:]])

        x, y, sample_weight = data
        inputs = map_tensors(lambda tensor: fill(tensor, 1), x)
        return inputs, *map_tensors(lambda tensor: fill(tensor, 0), (y, sample_weight))

    def _shift_seeds(self, replica: Tensor, state: list[Any]) -> list[Tensor]:
        """Shifts seeds, so that each replica has its own dropout; `-replica` shifts them back."""
        shift = replica * tf.constant([_SEED_STRIDE, 0], "int64")
        return [
            tf.convert_to_tensor(value) + shift
            if variable.name == "seed_generator_state"
            else tf.convert_to_tensor(value)
            for variable, value in zip(self._task.non_trainable_variables, state)
        ]

    def _update_metrics(self, data: tuple[Any, Any, Any], outputs: Any) -> dict[str, Tensor]:
        x, y, sample_weight = data
        # Leaves out the row that `_fill_if_empty` may have added.
        rows = tf.shape(tree.flatten(x)[0])[0]
        outputs = tree.map_structure(lambda tensor: tensor[:rows], outputs)
        logs = self._task.compute_metrics(x, y, outputs, sample_weight)
        if isinstance(self._task.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy):
            # Keras takes the mean of the workers over the first axis.
            logs = {name: tf.reshape(value, [1]) for name, value in logs.items()}
        return logs


def _sum_of_replicas(tensors: Any) -> Any:
    context = tf.distribute.get_replica_context()
    with gradients_held_by_graph():  # the sum has one, which no tape asks for here
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)


class TensorFlowHooks(ModelHooks):
    """A mixin for tasks: Keras calls it, and `training_step` does the work."""

    training_step: TensorFlowStep

    def compile(self, *args: Any, **kwargs: Any) -> None:
        super().compile(*args, **kwargs)
        take_summed_gradients(self.optimizer)

    def train_step(self, data: Any) -> dict[str, Tensor]:
        return self.training_step.train(data)

    def test_step(self, data: Any) -> dict[str, Tensor]:
        return self.training_step.evaluate(data)

    def make_train_function(self, force: bool = False) -> None:
        if self.train_function is None or force:
            self.training_step.compile()
            with without_outer_jit(self):
                super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> None:
        with without_outer_jit(self):
            super().make_test_function(force)

    def jit_compiles_by_default(self) -> bool:
        # The same as in Keras, but also under a strategy.
        return any(device.device_type != "CPU" for device in tf.config.list_physical_devices())

    def data_to_build_by(self, iterator: Any, batch: Any) -> tuple[Any, Any]:
        # Keras builds metrics with the mean of all replicas' data, which fails with several
        # workers. The data of one replica is enough, or what is known of it.
        specs = specs_of(iterator)
        if specs is not None:
            return None, specs
        if iterator is None or not has_strategy(self):
            return iterator, batch
        batch = next(next(iter(iterator))[-1])
        local = self.distribute_strategy.experimental_local_results
        return None, tree.map_structure(lambda v: local(v)[0], batch)

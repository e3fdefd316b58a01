"""The training step: compiled inside each replica, averaged over all, and only then clipped.

Under a `tf.distribute` strategy, Keras compiles no step, and clips each replica's gradient before
it sums them. `TrainingStep` mends both behind plain `model.fit`. It also adds accumulation: a batch
is taken in slices whose gradients are added up, so that a large batch fits a small memory.
"""

import contextlib

import keras
from keras import ops, tree

from gpt1_keras.lazy import tensorflow as tf

_SEEDS_APART = 0x9E3779B9  # odd and irregular, so that no replica repeats another's dropout


class StatelessLoss:
    """The loss as a pure function of the variables' values, on any backend."""

    accumulation_steps = 1

    def compile(self, *args, accumulation_steps=1, **kwargs):
        """See `keras.Model.compile`; `accumulation_steps` is the number of slices of a batch."""
        if accumulation_steps < 1:
            raise ValueError(
                f"`accumulation_steps` must be at least 1. Received: {accumulation_steps}."
            )
        self.accumulation_steps = accumulation_steps
        super().compile(*args, **kwargs)

    def forward_loss(self, x, y, sample_weight, training):
        """A forward pass, and the mean loss over the batch.

        Args:
            x, y, sample_weight: a batch, as in `keras.Model.compute_loss`.
            training: bool.

        Returns:
            `(outputs, loss)`; the outputs as `compute_metrics` takes them.
        """
        outputs = self(x, training=training)
        loss = self.compute_loss(x, y, outputs, sample_weight, training=training)
        if keras.backend.backend() == "tensorflow":
            loss *= tf.distribute.get_strategy().num_replicas_in_sync  # which Keras divides by
        return outputs, loss

    def loss_count(self, x, y, sample_weight):
        """How many things `forward_loss` is the mean over: examples here, float32 scalar."""
        return ops.cast(ops.shape(tree.flatten(x)[0])[0], "float32")

    def stateless_loss(self, trainable, non_trainable, x, y, sample_weight, training=True):
        """`forward_loss` at given values of the variables.

        Returns:
            `(loss, outputs, new values of the non-trainable variables)`.
        """
        variables = [*self.trainable_variables, *self.non_trainable_variables]
        mapping = zip(variables, [*trainable, *non_trainable])
        with keras.StatelessScope(mapping, collect_losses=True) as scope:
            outputs, loss = self.forward_loss(x, y, sample_weight, training)
        state = [scope.get_current_value(v) for v in self.non_trainable_variables]
        return loss, outputs, state


class TensorFlowStep(StatelessLoss):
    """The step on TensorFlow, under any strategy."""

    def compile(self, *args, **kwargs):
        super().compile(*args, **kwargs)
        optimizer = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        # `train_step` has summed them already, before the optimizer clips.
        optimizer._all_reduce_sum_gradients = list

    def train_step(self, data):
        data = keras.utils.unpack_x_y_sample_weight(data)
        context = tf.distribute.get_replica_context()
        all_reduce, total = context.all_reduce, tf.distribute.ReduceOp.SUM
        count = all_reduce(total, self.loss_count(*data))

        values = [tf.convert_to_tensor(variable) for variable in self.trainable_variables]
        replica = tf.cast(context.replica_id_in_sync_group, "int64")
        state = self._shift_seeds(replica, self.non_trainable_variables)
        scale = tf.convert_to_tensor(self.optimizer.scale_loss(1.0))
        loss, gradients, outputs = tf.constant(0.0), None, []
        for index in range(self.accumulation_steps):
            # The slices wait for each other: side by side, they would need all the memory.
            with tf.control_dependencies(gradients or []):
                piece = self._slice(data, index)
            share = tf.math.divide_no_nan(self.loss_count(*piece), count)
            piece_loss, piece_gradients, piece_outputs, state = self._compiled_gradients(
                values, state, self._filled(piece), share, scale
            )
            loss += piece_loss
            if gradients is not None:
                piece_gradients = [a + b for a, b in zip(gradients, piece_gradients)]
            gradients = piece_gradients
            outputs.append(piece_outputs)
        state = self._shift_seeds(-replica, state)
        for variable, value in zip(self.non_trainable_variables, state):
            variable.assign(value)

        loss, gradients = all_reduce(total, loss), all_reduce(total, gradients)
        self.optimizer.apply(gradients, self.trainable_variables)
        self._loss_tracker.update_state(loss, sample_weight=count)
        outputs = tree.map_structure(lambda *slices: tf.concat(slices, axis=0), *outputs)
        return self._report(data, outputs)

    def test_step(self, data):
        data = keras.utils.unpack_x_y_sample_weight(data)
        outputs, loss = self.forward_loss(*data, training=False)
        count = self.loss_count(*data)
        # A replica may get nothing of the last batch, and the mean of nothing is not a number.
        self._loss_tracker.update_state(tf.where(count > 0, loss, 0.0), sample_weight=count)
        return self._report(data, outputs)

    def _gradients(self, values, state, data, share, scale):
        """The part that XLA compiles: the loss of a slice of the batch, and its gradients.

        Args:
            values, state: lists of tensors, the trainable and the other variables' values.
            data: `(x, y, sample_weight)`.
            share: float32 scalar, the slice's share of the batch's mean.
            scale: float32 scalar, the loss scale of float16.

        Returns:
            `(loss, scaled gradients, outputs, state)`, loss and gradients being the slice's share.
        """
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss, outputs, state = self.stateless_loss(values, state, *data)
            loss = share * tf.cast(loss, "float32")
            scaled_loss = scale * loss
        gradients = tape.gradient(scaled_loss, values, unconnected_gradients="zero")
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients], outputs, state

    def _slice(self, data, index):
        """The slice of that number of a batch."""
        if self.accumulation_steps == 1:
            return data

        def take(tensor):
            rows = tf.shape(tensor)[0]
            start = index * rows // self.accumulation_steps
            return tensor[start : (index + 1) * rows // self.accumulation_steps]

        return _map_tensors(take, data)

    def _filled(self, data):
        """The data, or a row of zeros: a slice or a replica may get nothing of a small batch."""
        if self.accumulation_steps == self.distribute_strategy.num_replicas_in_sync == 1:
            return data

        def fill(tensor):
            is_empty = tf.cast(tf.shape(tensor)[0] == 0, "int32")
            zeros = tf.zeros([is_empty, *tf.unstack(tf.shape(tensor)[1:])], tensor.dtype)
            filled = tf.concat([tensor, zeros], axis=0)
            return tf.ensure_shape(filled, [None, *tensor.shape[1:]])

        return _map_tensors(fill, data)

    def _shift_seeds(self, replica, state):
        """The state with each replica's own seeds, else all would drop the same."""
        shift = replica * tf.constant([_SEEDS_APART, 0], "int64")
        return [
            tf.convert_to_tensor(value) + shift
            if variable.name == "seed_generator_state"
            else tf.convert_to_tensor(value)
            for variable, value in zip(self.non_trainable_variables, state)
        ]

    def _report(self, data, outputs):
        x, y, sample_weight = data
        # Without the row that may have stood in for no rows at all.
        rows = tf.shape(tree.flatten(x)[0])[0]
        outputs = tree.map_structure(lambda tensor: tensor[:rows], outputs)
        logs = self.compute_metrics(x, y, outputs, sample_weight)
        if isinstance(self.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy):
            # Keras takes the mean of the workers over the first axis.
            logs = {name: tf.reshape(value, [1]) for name, value in logs.items()}
        return logs

    # === Keras's own training loop ===

    def make_train_function(self, force=False):
        if self.train_function is None or force:
            self._compiled_gradients = self._gradients
            if not self.run_eagerly:
                self._compiled_gradients = tf.function(
                    self._gradients, jit_compile=self.jit_compile, autograph=False
                )
            with self._no_outer_jit():
                super().make_train_function(force)

    def make_test_function(self, force=False):
        with self._no_outer_jit():
            super().make_test_function(force)

    @contextlib.contextmanager
    def _no_outer_jit(self):
        # Keras would compile around the strategy, which fails with more than one replica.
        jit, self._jit_compile = self.jit_compile, False
        try:
            yield
        finally:
            self._jit_compile = jit

    def _resolve_auto_jit_compile(self):
        # As Keras does, but also under a strategy.
        return any(device.device_type != "CPU" for device in tf.config.list_physical_devices())

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # Keras builds metrics with the mean of all replicas' data, which fails for several
        # workers; one replica's data will do.
        if iterator is not None and self._distribute_strategy is not None:
            batch = next(next(iter(iterator))[-1])
            local = self.distribute_strategy.experimental_local_results
            iterator, data_batch = None, tree.map_structure(lambda v: local(v)[0], batch)
        super()._maybe_symbolic_build(iterator, data_batch)


class JaxStep(StatelessLoss):
    """The step on JAX, for one device: Keras's own, with our loss and accumulation."""

    def compute_loss_and_updates(
        self,
        trainable_variables,
        non_trainable_variables,
        metrics_variables,
        x,
        y,
        sample_weight,
        training=False,
        optimizer_variables=None,
    ):
        loss, outputs, state = self.stateless_loss(
            trainable_variables, non_trainable_variables, x, y, sample_weight, training
        )
        scaled_loss = loss
        if training:
            mapping = zip(self.optimizer.variables, optimizer_variables)
            with keras.StatelessScope(mapping):
                scaled_loss = self.optimizer.scale_loss(loss)
        return scaled_loss, (loss, outputs, state, metrics_variables)

    def _update_metrics_variables(self, metrics_variables, loss, x, y, outputs, sample_weight):
        mapping = zip(self.metrics_variables, metrics_variables)
        with keras.StatelessScope(mapping) as scope:
            self._loss_tracker.update_state(
                loss, sample_weight=self.loss_count(x, y, sample_weight)
            )
            logs = self.compute_metrics(x, y, outputs, sample_weight)
        return logs, [scope.get_current_value(variable) for variable in self.metrics_variables]

    def train_step(self, state, data):
        if self.accumulation_steps == 1:
            return super().train_step(state, data)
        import jax

        data = keras.utils.unpack_x_y_sample_weight(data)
        count = self.loss_count(*data)
        trainable, non_trainable, optimizer_variables, metrics_variables = state

        def share_of_loss(trainable, non_trainable, piece):
            scaled_loss, (loss, outputs, non_trainable, _) = self.compute_loss_and_updates(
                trainable, non_trainable, metrics_variables, *piece, True, optimizer_variables
            )
            share = self.loss_count(*piece) / count
            return share * scaled_loss, (share * loss, outputs, non_trainable)

        def add_slice(carried, piece):
            loss, gradients, non_trainable = carried
            (_, aux), piece_gradients = jax.value_and_grad(share_of_loss, has_aux=True)(
                trainable, non_trainable, piece
            )
            gradients = [a + b for a, b in zip(gradients, piece_gradients)]
            return (loss + aux[0], gradients, aux[2]), aux[1]

        start = (ops.zeros(()), [ops.zeros_like(value) for value in trainable], non_trainable)
        (loss, gradients, non_trainable), outputs = jax.lax.scan(
            add_slice, start, _map_tensors(self._in_slices, data)
        )
        outputs = tree.map_structure(lambda t: ops.reshape(t, (-1, *t.shape[2:])), outputs)
        trainable, optimizer_variables = self.optimizer.stateless_apply(
            optimizer_variables, gradients, trainable
        )
        logs, metrics_variables = self._update_metrics_variables(
            metrics_variables, loss, *data[:2], outputs, data[2]
        )
        return logs, (trainable, non_trainable, optimizer_variables, metrics_variables)

    def _in_slices(self, tensor):
        if tensor.shape[0] % self.accumulation_steps:
            raise ValueError(
                "On the JAX backend, `accumulation_steps` must divide the batch size. Received: "
                f"accumulation_steps={self.accumulation_steps}, a batch of {tensor.shape[0]}."
            )
        return ops.reshape(tensor, (self.accumulation_steps, -1, *tensor.shape[1:]))


def _map_tensors(function, data):
    """The function of each tensor; labels and weights that are missing stay so."""
    return tree.map_structure(lambda t: None if t is None else function(t), data)


if keras.backend.backend() == "jax":
    TrainingStep: type = JaxStep
else:
    TrainingStep = TensorFlowStep

"""Cross-entropy behind a linear layer over a vocabulary, without all its logits at once."""

import keras
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.custom_gradients.execution_order import zero_after

# In memory at a time: 32 MiB in float32, or this share of all, which is more if the batch is large.
MAX_LOGITS = 2**23
_MAX_CHUNKS = 16


def linear_cross_entropy(states, table, targets, weights, training=False):
    """The weighted sum of -log softmax(states table^T)[target].

    The logits are formed chunk by chunk, and in training each chunk's gradient is formed with its
    loss. So no more than `MAX_LOGITS` or a 16th of them are ever in memory, and nothing is computed
    twice.

    Args:
        states: float `[rows, width]`.
        table: float `[vocabulary, width]`, of the same dtype.
        targets: int32 `[rows]`.
        weights: float32 `[rows]`; no gradient flows to them.
        training: bool, whether a gradient will be asked for.

    Returns:
        float32 scalar, in nats.
    """
    states, targets, weights, chunks = _pad_to_chunks(states, table, targets, weights)
    if not training:
        return _sum_over_chunks(states, table, targets, weights, chunks, training)[0]

    # Gradients are of weights up to 1, so that float16 does not round those of a mean to 0.
    largest = ops.max(weights, initial=1e-30)

    @ops.custom_gradient
    def loss_with_gradient(states, table):
        loss, states_gradient, table_gradient = _sum_over_chunks(
            states, table, targets, weights / largest, chunks, training
        )

        def gradient(*args, upstream=None):
            # float32 up to here, so that a float16 loss scale comes before the rounding.
            upstream = largest * (args[0] if upstream is None else upstream)
            return (
                ops.cast(upstream * states_gradient, states.dtype),
                ops.cast(upstream * table_gradient, table.dtype),
            )

        return largest * loss, gradient

    return loss_with_gradient(states, table)


def _pad_to_chunks(states, table, targets, weights):
    """Adds rows of weight 0 until a whole number of equal chunks holds all rows."""
    rows = ops.shape(states)[0]
    largest = max if isinstance(rows, int) else ops.maximum
    max_rows = largest(max(1, MAX_LOGITS // table.shape[0]), -(-rows // _MAX_CHUNKS))
    chunks = largest(1, -(-rows // max_rows))
    missing = -rows % chunks
    states = ops.pad(states, ((0, missing), (0, 0)))
    return states, ops.pad(targets, ((0, missing),)), ops.pad(weights, ((0, missing),)), chunks


def _sum_over_chunks(states, table, targets, weights, chunks, training):
    """Returns `(loss, gradient of states, gradient of table)`, the latter two only in training."""
    width = table.shape[1]
    rows = ops.shape(states)[0] // chunks

    def add_chunk(index, loss, *gradients):
        # Never true, but it makes a chunk wait for the one before: else several would be in
        # memory side by side.
        start = index * rows + ops.cast(loss < 0.0, "int32")
        state = ops.slice(states, (start, 0), (rows, width))
        target = ops.slice(targets, (start,), (rows,))
        weight = ops.slice(weights, (start,), (rows,))

        logits = ops.cast(ops.matmul(state, ops.transpose(table)), "float32")  # (rows, V)
        losses, slope = _cross_entropy_and_slope(logits, target)
        loss += ops.sum(losses * weight)
        if not training:
            return index + 1, loss
        states_gradient, table_gradient = gradients
        slope, weight = ops.cast(slope, state.dtype), weight[:, None]
        state_gradient = ops.cast(ops.matmul(slope, table), "float32") * weight
        states_gradient = ops.slice_update(states_gradient, (start, 0), state_gradient)
        state *= ops.cast(weight, state.dtype)
        table_gradient += ops.cast(ops.matmul(ops.transpose(slope), state), "float32")
        return index + 1, loss, states_gradient, table_gradient

    carried = [0, ops.zeros(())]
    if training:
        # Not constants, which TensorFlow would keep in the graph for good.
        zero = ops.cast(zero_after(table), "float32")
        carried += [ops.full(ops.shape(states), zero), ops.full(table.shape, zero)]
    _, *results = ops.while_loop(lambda index, *_: index < chunks, add_chunk, carried)
    return results


def _cross_entropy_and_slope(logits, targets):
    """-log softmax(logits)[target], float32 `[rows]`, and its derivative by the logits."""
    if keras.backend.backend() == "tensorflow":  # one kernel that forms both, in place
        return tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=targets)
    logarithms = ops.log_softmax(logits)
    losses = -ops.take_along_axis(logarithms, targets[:, None], axis=-1)[:, 0]
    is_target = targets[:, None] == ops.arange(logits.shape[-1])
    return losses, ops.exp(logarithms) - ops.cast(is_target, "float32")

"""Cross-entropy after a linear layer over a vocabulary, without all its logits at once."""

import math
from typing import Any

import keras
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.attention import MASKED_SCORE
from gpt1_keras.models.graph_execution import custom_gradient, fused, zero_after
from gpt1_keras.types import Tensor

MAX_LOGITS = 2**23  # in memory at once: 32 MiB in float32
_MAX_CHUNKS = 16  # a large batch has larger chunks instead of more of them
_ALIGNMENT = 128  # of a vocabulary on GPUs


def linear_cross_entropy(
    states: Tensor,
    table: Tensor,
    targets: Tensor,
    weights: Tensor,
    training: bool = False,
    num_untrained_tokens: int = 0,
) -> Tensor:
    """Returns the weighted sum of -log softmax(states table^T)[target], float32 scalar, in nats.

    Logits are computed chunk by chunk; in training, each chunk's gradient is computed with its
    loss. So at most `MAX_LOGITS` or a 16th of the logits are in memory, and nothing is computed
    twice. States are float `[rows, width]`; the table is `[vocabulary, width]`, of the same dtype;
    targets are int32 and weights, which get no gradient, float32 `[rows]`. The softmax leaves out
    the last rows of the table, `num_untrained_tokens`.
    """
    states, targets, weights, chunks = _pad_to_chunks(states, table, targets, weights)
    if not training:
        return _sum_over_chunks(
            states, table, targets, weights, chunks, training, num_untrained_tokens
        )[0]

    # Scaled to at most 1: float16 would round the small gradients of a mean to 0.
    largest = ops.max(weights, initial=1e-30)

    @custom_gradient
    def loss_with_gradient(states: Tensor, table: Tensor) -> tuple[Tensor, Any]:
        loss, states_gradient, table_gradient = _sum_over_chunks(
            states, table, targets, weights / largest, chunks, training, num_untrained_tokens
        )

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, Tensor]:
            # In float32 until here, so that a loss scale for float16 applies before rounding.
            upstream = largest * (args[0] if upstream is None else upstream)
            return (
                ops.cast(upstream * states_gradient, states.dtype),
                ops.cast(upstream * table_gradient, table.dtype),
            )

        return largest * loss, gradient

    return loss_with_gradient(states, table)


def _pad_to_chunks(
    states: Tensor, table: Tensor, targets: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor, int | Tensor]:
    """Adds rows of weight 0 up to a whole number of equal chunks."""
    rows = ops.shape(states)[0]
    maximum: Any = max if isinstance(rows, int) else ops.maximum
    max_rows = maximum(max(1, MAX_LOGITS // table.shape[0]), -(-rows // _MAX_CHUNKS))
    chunks = maximum(1, -(-rows // max_rows))
    missing = -rows % chunks
    states = ops.pad(states, ((0, missing), (0, 0)))
    return states, ops.pad(targets, ((0, missing),)), ops.pad(weights, ((0, missing),)), chunks


def _sum_over_chunks(
    states: Tensor,
    table: Tensor,
    targets: Tensor,
    weights: Tensor,
    chunks: int | Tensor,
    training: bool,
    num_untrained_tokens: int,
) -> list[Tensor]:
    """Returns `(loss, gradient of states, gradient of table)`, the latter two only in training."""
    vocabulary_size, width = table.shape
    if _needs_alignment(table):
        table = ops.pad(table, ((0, -vocabulary_size % _ALIGNMENT), (0, 0)))
    rows = ops.shape(states)[0] // chunks

    def add_chunk(index: Tensor, loss: Tensor, *gradients: Tensor) -> tuple[Tensor, ...]:
        # `loss < 0` is never true, but makes a chunk wait for the one before: several at once would
        # need more memory.
        start = index * rows + ops.cast(loss < 0.0, "int32")
        state = ops.slice(states, (start, 0), (rows, width))
        target = ops.slice(targets, (start,), (rows,))
        weight = ops.slice(weights, (start,), (rows,))

        logits = ops.cast(ops.matmul(state, ops.transpose(table)), "float32")  # (rows, V)
        losses, logits_gradient = _cross_entropy_and_gradient(
            logits, target, vocabulary_size - num_untrained_tokens
        )
        loss += ops.sum(losses * weight)
        if not training:
            return index + 1, loss
        states_gradient, table_gradient = gradients
        logits_gradient, weight = ops.cast(logits_gradient, state.dtype), weight[:, None]
        state_gradient = ops.cast(ops.matmul(logits_gradient, table), "float32") * weight
        states_gradient = ops.slice_update(states_gradient, (start, 0), state_gradient)
        state *= ops.cast(weight, state.dtype)
        table_gradient += ops.cast(ops.matmul(ops.transpose(logits_gradient), state), "float32")
        return index + 1, loss, states_gradient, table_gradient

    carried: list[Any] = [0, ops.zeros(())]
    if training:
        # Not constants, which TensorFlow would store in the graph.
        zero = ops.cast(zero_after(table), "float32")
        carried += [ops.full(ops.shape(states), zero), ops.full(table.shape, zero)]
    _, *results = ops.while_loop(lambda index, *_: index < chunks, add_chunk, carried)
    if training and table.shape[0] > vocabulary_size:
        results[-1] = results[-1][:vocabulary_size]
    return results


def _needs_alignment(table: Tensor) -> bool:
    """Returns whether products with the table are slow for an odd vocabulary: on GPUs, in 16 bits.

    With the paper's 40,481 tokens, a step on an H100 takes 1.1 times as long. On a CPU, padding
    costs a copy of the table, and gains nothing.
    """
    if keras.backend.standardize_dtype(table.dtype) not in ("bfloat16", "float16"):
        return False
    return keras.backend.backend() != "tensorflow" or bool(tf.config.list_physical_devices("GPU"))


@fused
def _cross_entropy_and_gradient(
    logits: Tensor, targets: Tensor, num_tokens: int
) -> tuple[Tensor, Tensor]:
    """Returns -log softmax(logits)[target], float32 `[rows]`, and its gradient.

    Logits from `num_tokens` on take no part. TensorFlow has a kernel for both, which takes 1.5
    times as long on a CPU.
    """
    if num_tokens < logits.shape[-1]:
        is_token = ops.arange(logits.shape[-1]) < num_tokens
        logits = ops.where(is_token, logits, MASKED_SCORE)
    of_targets = ops.take_along_axis(logits, targets[:, None], axis=-1)
    # Without `initial`, Keras refuses a tensor without rows.
    largest = ops.max(logits, axis=-1, keepdims=True, initial=-math.inf)
    exponentials = ops.exp(logits - largest)
    total = ops.sum(exponentials, axis=-1, keepdims=True)
    losses = ops.log(total) + largest - of_targets
    is_target = targets[:, None] == ops.arange(logits.shape[-1], dtype=targets.dtype)
    return losses[:, 0], exponentials / total - ops.cast(is_target, "float32")

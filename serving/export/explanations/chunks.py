"""Runs a model many times, in chunks of a bounded number of tokens."""

from collections.abc import Callable, Sequence

import tensorflow as tf

State = Sequence[tf.Tensor]


def run_in_chunks(
    compute: Callable[[tf.Tensor, State], State],
    state: State,
    lengths: tf.Tensor,
    max_tokens: int,
) -> State:
    """Calls a function for one chunk of runs after the other.

    Args:
        compute: from the indices of a chunk's runs, int32 `[runs]`, and the state, to the next
            state, tensors of the same shapes.
        state: the first state.
        lengths: int32 `[runs]`, the number of tokens that each run reads, descending.
        max_tokens: the most tokens of a chunk, padding included. A longer run is a chunk of its
            own.

    Returns:
        The last state.
    """
    count = tf.size(lengths)

    def step(first: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        size = tf.maximum(max_tokens // tf.maximum(lengths[first], 1), 1)
        runs = tf.range(first, tf.minimum(first + size, count))
        return first + tf.size(runs), compute(runs, state)

    return tf.while_loop(
        lambda first, _: first < count, step, (0, list(state)), parallel_iterations=1
    )[1]

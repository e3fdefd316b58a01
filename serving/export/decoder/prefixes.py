"""Sequences that begin alike: what they share is computed once."""

import tensorflow as tf


def first_with_prefix(features: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Finds the first sequence that begins with the same tokens, up to each token.

    In a causal model, the hidden state of a token depends on nothing else. The search ends with the
    longest prefix that two sequences share.

    Args:
        features: int32 `[batch, length, n]`, the n numbers that each token is embedded and masked
            by.
        lengths: int32 `[batch]`, of the sequences.

    Returns:
        int32 `[columns + 1, batch]`: for each column, until no prefix is shared any more, the first
        sequence that has the prefix of each sequence, which may be itself. In the last row, all
        are themselves.
    """
    batch = tf.range(tf.size(lengths))

    def step(
        column: tf.Tensor, first: tf.Tensor, firsts: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        is_token = column < lengths
        before = tf.where(is_token, first, -1 - batch)  # padding is like no token
        tokens = tf.concat([before[:, tf.newaxis], features[:, column]], axis=1)
        number = tf.raw_ops.UniqueV2(x=tokens, axis=[0]).idx
        smallest = tf.math.unsorted_segment_min(batch, number, tf.size(lengths))
        first = tf.where(is_token, tf.gather(smallest, number), batch)
        return column + 1, first, tf.concat([firsts, first[tf.newaxis]], axis=0)

    empty = tf.zeros_like(batch)  # the prefix of no token, which all share
    _, _, firsts = tf.while_loop(
        lambda column, first, _: tf.reduce_any(first != batch) & (column < tf.shape(features)[1]),
        step,
        (0, empty, empty[tf.newaxis][:0]),
        shape_invariants=(tf.TensorShape([]), empty.shape, tf.TensorShape([None, None])),
        parallel_iterations=1,
    )
    return tf.concat([firsts, batch[tf.newaxis]], axis=0)

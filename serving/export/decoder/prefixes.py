"""Finds prefixes that sequences share, so that they are computed once."""

import tensorflow as tf


def first_with_prefix(features: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Finds, for each prefix of each sequence, the first sequence that begins with it.

    In a causal model, a token's hidden state depends only on its prefix. The search ends with the
    longest prefix that two sequences share.

    Args:
        features: int32 `[batch, length, n]`, n numbers that decide each token's embedding and mask.
        lengths: int32 `[batch]`, the sequences' lengths.

    Returns:
        int32 `[columns + 1, batch]`: for each column, until no prefix is shared any more, the first
        sequence with the same prefix as each sequence. It may be the sequence itself, and always is
        in the last row.
    """
    batch = tf.range(tf.size(lengths))

    def step(
        column: tf.Tensor, first: tf.Tensor, firsts: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        is_token = column < lengths
        before = tf.where(is_token, first, -1 - batch)  # padding equals no token
        tokens = tf.concat([before[:, tf.newaxis], features[:, column]], axis=1)
        number = tf.raw_ops.UniqueV2(x=tokens, axis=[0]).idx
        smallest = tf.math.unsorted_segment_min(batch, number, tf.size(lengths))
        first = tf.where(is_token, tf.gather(smallest, number), batch)
        return column + 1, first, tf.concat([firsts, first[tf.newaxis]], axis=0)

    empty = tf.zeros_like(batch)  # all sequences share the empty prefix
    _, _, firsts = tf.while_loop(
        lambda column, first, _: tf.reduce_any(first != batch) & (column < tf.shape(features)[1]),
        step,
        (0, empty, empty[tf.newaxis][:0]),
        shape_invariants=(tf.TensorShape([]), empty.shape, tf.TensorShape([None, None])),
        parallel_iterations=1,
    )
    return tf.concat([firsts, batch[tf.newaxis]], axis=0)

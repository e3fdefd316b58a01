"""Operations on ragged tensors in linear time, whatever their longest row.

TensorFlow's own ops for these build a mask of all rows by the longest row.
"""

from __future__ import annotations

from gpt1_keras.lazy import tensorflow as tf


def row_indices(splits: tf.Tensor) -> tf.Tensor:
    """The index of the row that each value belongs to: int `[rows + 1]` to int `[values]`."""
    starts = splits[1:-1]  # of all rows but the first, which may be empty
    steps = tf.math.unsorted_segment_sum(tf.ones_like(starts), starts, splits[-1] + 1)
    return tf.cumsum(steps)[:-1]


def join_rows(rows: tf.RaggedTensor, indices: tf.RaggedTensor) -> tf.RaggedTensor:
    """Joins rows, each of which may be used many times.

    Args:
        rows: `[n, None]`, of any dtype.
        indices: int32 `[batch, None]`, indices of rows.

    Returns:
        `[batch, None]`: for each list of indices, the values of its rows.
    """
    lengths = tf.gather(rows.row_lengths(), indices.values)
    splits = tf.concat([[0], tf.cumsum(lengths)], 0)
    shifts = tf.gather(rows.row_starts(), indices.values) - splits[:-1]
    sources = tf.range(splits[-1]) + tf.gather(shifts, row_indices(splits))
    return tf.RaggedTensor.from_row_splits(
        tf.gather(rows.values, sources), tf.gather(splits, indices.row_splits), validate=False
    )


def concatenate(texts: tf.RaggedTensor) -> tf.Tensor:
    """Concatenates the strings of each row: ragged string `[n, None]` to string `[n]`."""
    rows = row_indices(texts.row_splits)
    return tf.strings.unsorted_segment_join(texts.values, rows, texts.nrows())

"""Ragged tensors in linear time, whatever their longest row.

TensorFlow's own ops for this build a mask of all rows by the longest row.
"""

from gpt1_keras.lazy import tensorflow as tf


def row_numbers(splits):
    """The number of the row that each value belongs to: int `[rows + 1]` to int `[values]`."""
    begins = splits[1:-1]  # of all rows but the first, which may be empty
    steps = tf.math.unsorted_segment_sum(tf.ones_like(begins), begins, splits[-1] + 1)
    return tf.cumsum(steps)[:-1]


def join_rows(rows, numbers):
    """Joins rows that come again and again.

    Args:
        rows: `tf.RaggedTensor` `[n, None]`.
        numbers: `tf.RaggedTensor`, int32 `[batch, None]`, numbers of rows.

    Returns:
        `tf.RaggedTensor` `[batch, None]`: for each list of numbers, the values of its rows.
    """
    lengths = tf.gather(rows.row_lengths(), numbers.values)
    splits = tf.concat([[0], tf.cumsum(lengths)], 0)
    shifts = tf.gather(rows.row_starts(), numbers.values) - splits[:-1]
    places = tf.range(splits[-1]) + tf.gather(shifts, row_numbers(splits))
    return tf.RaggedTensor.from_row_splits(
        tf.gather(rows.values, places), tf.gather(splits, numbers.row_splits), validate=False
    )


def concatenate(texts):
    """Concatenates the strings of each row: ragged string `[n, None]` to string `[n]`."""
    rows = row_numbers(texts.row_splits)
    return tf.strings.unsorted_segment_join(texts.values, rows, texts.nrows())

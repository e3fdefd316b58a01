"""Operations on ragged tensors in linear time, whatever their longest row, and in few ops.

TensorFlow's own ops for these build a mask of all rows by the longest row.
"""

from __future__ import annotations

from gpt1_keras.lazy import tensorflow as tf


def row_indices(splits: tf.Tensor) -> tf.Tensor:
    """The index of the row that each value belongs to: int `[rows + 1]` to int `[values]`."""
    starts = splits[1:-1]  # of all rows but the first, which may be empty
    steps = tf.math.unsorted_segment_sum(tf.ones_like(starts), starts, splits[-1] + 1)
    return tf.cumsum(steps)[:-1]


def from_row_indices(values: tf.Tensor, rows: tf.Tensor, nrows: tf.Tensor) -> tf.RaggedTensor:
    """The ragged tensor of values, `[n]`, and the index of each one's row, ascending int `[n]`."""
    splits = tf.raw_ops.LowerBound(
        sorted_inputs=rows[None], values=tf.range(nrows + 1)[None], out_type=tf.int64
    )[0]
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def split_at_white_space(texts: tf.Tensor) -> tf.RaggedTensor:
    """Splits texts at ASCII white space: string `[n]` to string `[n, None]`, none of them empty."""
    parts = tf.raw_ops.StringSplitV2(input=texts, sep="")
    return from_row_indices(parts.values, parts.indices[:, 0], parts.shape[0])


def join_rows(rows: tf.RaggedTensor, indices: tf.RaggedTensor) -> tf.RaggedTensor:
    """Joins rows, each of which may be used many times.

    Args:
        rows: `[n, None]`, of any dtype.
        indices: int32 `[batch, None]`, indices of rows.

    Returns:
        `[batch, None]`: for each list of indices, the values of its rows.
    """
    if rows.shape[1] == 1:  # known when the graph is made
        return indices.with_values(tf.gather(rows.values, indices.values))
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

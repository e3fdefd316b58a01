"""Ops for graphs that TensorFlow lacks: on rows of ragged tensors, and for branches and calls.

Each takes few of TensorFlow's ops, because every op costs time even if its tensors are small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpt1_keras.lazy import tensorflow as tf


def row_splits(lengths: tf.Tensor) -> tf.Tensor:
    """Returns the row splits of rows of these lengths: int `[rows]` to int `[rows + 1]`."""
    return tf.concat([[0], tf.cumsum(lengths)], 0)


def row_indices(splits: tf.Tensor) -> tf.Tensor:
    """Returns the row that each value belongs to: int `[rows + 1]` to int `[values]`."""
    starts = splits[1:-1]  # without that of the first row, which may be empty
    steps = tf.math.unsorted_segment_sum(tf.ones_like(starts), starts, splits[-1] + 1)
    return tf.cumsum(steps)[:-1]


def from_row_indices(values: tf.Tensor, rows: tf.Tensor, nrows: tf.Tensor) -> tf.RaggedTensor:
    """Makes `nrows` rows of values, `[n]`, from the row index of each, ascending int `[n]`."""
    splits = tf.raw_ops.UpperBound(
        sorted_inputs=tf.expand_dims(rows, 0),
        values=tf.expand_dims(tf.range(-1, nrows), 0),
        out_type=tf.int64,
    )
    return tf.RaggedTensor.from_row_splits(values, tf.squeeze(splits, 0), validate=False)


def rows_of_one(values: tf.Tensor) -> tf.RaggedTensor:
    """Makes rows of one value each: `[n]` to `[n, None]`."""
    splits = tf.range(tf.size(values, tf.int64) + 1)
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def split_at_white_space(texts: tf.Tensor) -> tf.RaggedTensor:
    """Splits texts at ASCII white space: string `[n]` to string `[n, None]`, none of them empty."""
    parts = tf.raw_ops.StringSplitV2(input=texts, sep="")
    rows, _ = tf.unstack(parts.indices, axis=1)
    return from_row_indices(parts.values, rows, tf.size(texts, tf.int64))


def join_rows(rows: tf.RaggedTensor, indices: tf.RaggedTensor) -> tf.RaggedTensor:
    """Joins rows, `[n, None]`, each of which may be used many times.

    Returns `[batch, None]`: for each list of `indices`, int `[batch, None]`, the values of its
    rows.
    """
    gathered = gather_rows(rows, indices.values)
    splits = tf.gather(gathered.row_splits, indices.row_splits)
    return tf.RaggedTensor.from_row_splits(gathered.values, splits, validate=False)


def gather_rows(rows: tf.RaggedTensor, indices: tf.Tensor) -> tf.RaggedTensor:
    """Gathers rows, `[n, None]`, at indices, int `[m]`, to `[m, None]`."""
    # tf.gather would take many ops to find out which dimensions are ragged.
    [splits], values = tf.raw_ops.RaggedGather(
        params_nested_splits=[rows.row_splits],
        params_dense_values=rows.values,
        indices=indices,
        OUTPUT_RAGGED_RANK=1,
    )
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def put_rows(rows: tf.RaggedTensor, indices: tf.Tensor, others: tf.RaggedTensor) -> tf.RaggedTensor:
    """Replaces the rows, `[n, None]`, at indices, int `[m, 1]`, by others, `[m, None]`."""
    first = rows.row_splits[-1]
    pool = tf.RaggedTensor.from_row_splits(
        tf.concat([rows.values, others.values], 0),
        tf.concat([rows.row_splits[:-1], first + others.row_splits], 0),
        validate=False,
    )
    size = rows.nrows()
    sources = tf.tensor_scatter_nd_update(
        tf.range(size), indices, tf.range(size, size + others.nrows())
    )
    return gather_rows(pool, sources)


def concatenate(texts: tf.RaggedTensor) -> tf.Tensor:
    """Concatenates the strings of each row: ragged string `[n, None]` to string `[n]`."""
    rows = row_indices(texts.row_splits)
    return tf.strings.unsorted_segment_join(texts.values, rows, texts.nrows())


def call_if(condition: tf.Tensor, function: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """Calls `tf.cond` for a first branch that is large and seldom taken."""
    return tf.cond(condition, not_inlined(function), otherwise)


def not_inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function one op of the graphs that call it. Eagerly, it is as before.

    TensorFlow also visits every op of a branch that it does not take, unless the branch is one op.
    """
    return traced_once(function, _noinline=True)


def traced_once(function: Callable[..., Any], **attributes: bool) -> Callable[..., Any]:
    """Makes graphs hold a function once for all calls. Eagerly, it is as before."""
    compiled = tf.function(function, autograph=False, experimental_attributes=attributes or None)

    def call(*args: Any, **kwargs: Any) -> Any:
        return (function if tf.executing_eagerly() else compiled)(*args, **kwargs)

    return call

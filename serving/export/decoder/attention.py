"""Attention among the tokens of packed sequences, a group at a time."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from gpt1_keras.models.attention import attention
from gpt1_keras.models.attention_scores import visible_keys
from serving.export.decoder.packing import Packing


def attend(
    qkv: tf.Tensor,
    num_heads: int,
    packing: Packing,
    branches: tf.Tensor | None = None,
    asked: tuple[tf.Tensor, tf.Tensor] | None = None,
    padding: int | tf.Tensor = 0,
) -> tf.Tensor:
    """Attends to the same and all earlier tokens of the same sequence.

    Args:
        qkv: float `[rows, 3 * hidden_dim]`, queries, keys and values; further rows are padding.
        num_heads: number of heads.
        packing: where the rows' tokens are.
        branches: optional int32 `[rows]`, for branches after a shared prefix; see
            `gpt1_keras.models.attention_scores`.
        asked: optional int32 `[batch, n]` each, the indices, in their sequences, of the only
            tokens to return outputs for, and their rows; sequences as `packing` orders them.
        padding: how many rows to append.

    Returns:
        float `[rows + padding, hidden_dim]`, or `[batch * n + padding, hidden_dim]`.
    """
    width = qkv.shape[1] // 3

    def attend_all(group: tf.Tensor) -> tf.Tensor:
        rows = packing.rows_of(group)
        length = tf.shape(rows)[1]
        query, key, value = split_heads(tf.gather(qkv, rows), num_heads)
        of_keys = None if branches is None else tf.gather(branches, rows)
        found = attention(query, key, value, visible_keys(length, length, of_keys))
        return tf.gather(tf.reshape(found, [-1, width]), packing.slots_of(group))

    def attend_asked(group: tf.Tensor) -> tf.Tensor:
        rows, of_group = packing.rows_of(group), packing.sequences_of(group)
        columns, asked_rows = (each[of_group] for each in asked)
        _, key, value = split_heads(tf.gather(qkv, rows), num_heads)
        query, *_ = split_heads(tf.gather(qkv, asked_rows), num_heads)
        is_visible = tf.range(tf.shape(rows)[1]) <= columns[:, :, tf.newaxis]
        if branches is not None:
            of_keys = tf.gather(branches, rows)[:, tf.newaxis]
            of_queries = tf.gather(branches, asked_rows)[:, :, tf.newaxis]
            is_visible &= (of_keys == 0) | (of_keys == of_queries)
        found = attention(query, key, value, is_visible[:, tf.newaxis])
        return tf.reshape(found, [-1, width])

    of_group = attend_all if asked is None else attend_asked
    return _concatenate(of_group, packing.num_groups, tf.zeros([padding, width], qkv.dtype))


def split_heads(qkv: tf.Tensor, num_heads: int) -> list[tf.Tensor]:
    """float `[n, length, 3 * hidden_dim]` to query, key, value: `[n, heads, length, head_dim]`."""
    shape, head_dim = tf.shape(qkv), qkv.shape[-1] // (3 * num_heads)
    qkv = tf.reshape(qkv, [shape[0], shape[1], 3, num_heads, head_dim])
    return tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]))


def _concatenate(
    function: Callable[[tf.Tensor], tf.Tensor], count: tf.Tensor, last: tf.Tensor
) -> tf.Tensor:
    """What a function returns for 0, 1, ..., and then `last`: rows of one matrix."""
    parts = tf.TensorArray(
        last.dtype, count + 1, infer_shape=False, element_shape=[None, last.shape[1]]
    ).write(count, last)

    def step(number: tf.Tensor, parts: Any) -> tuple[tf.Tensor, Any]:
        return number + 1, parts.write(number, function(number))

    _, parts = tf.while_loop(
        lambda number, _: number < count, step, (0, parts), parallel_iterations=1
    )
    return parts.concat()

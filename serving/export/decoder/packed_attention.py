"""Attention between the tokens of packed sequences, one group at a time."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from gpt1_keras.models.attention import attention, join_heads, visible_keys, visible_keys_at
from gpt1_keras.tokenization.graph_ops import call_if, traced_once
from serving.export.decoder.packing import Packing


class PackedAttention:
    """Lets each token attend to itself and to all tokens before it in its sequence.

    A single group, such as that of one text, is computed without a loop, and sooner
    (docs/benchmarks.md, "Serving").

    Args:
        branches: optional int32 `[rows]`, for branches after a shared prefix; see
            `gpt1_keras.models.attention`.
    """

    def __init__(self, packing: Packing, branches: tf.Tensor | None = None) -> None:
        self._packing, self._branches = packing, branches
        self._first_group = self._read_group(0)  # for all blocks
        self.attend = traced_once(self._attend)

    def _attend(self, qkv: tf.Tensor, num_heads: int, padding: tf.Tensor) -> tf.Tensor:
        """Computes attention for every token.

        Args:
            qkv: float `[rows, 3 * hidden_dim]`, queries, keys and values; rows after the tokens'
                are padding.
            padding: int32 scalar, the number of rows to append.

        Returns:
            float `[rows + padding, hidden_dim]`.
        """

        def attend_group(_: Any, rows: tf.Tensor, slots: tf.Tensor, is_visible: tf.Tensor) -> Any:
            query, key, value = gather_heads(qkv, rows, num_heads)
            return _gather_slots(attention(query, key, value, is_visible), slots)

        return self._join_groups(attend_group, _zeros(qkv, padding))

    def attend_at(
        self,
        qkv: tf.Tensor,
        num_heads: int,
        padding: tf.Tensor,
        indices: tf.Tensor,
        index_rows: tf.Tensor,
    ) -> tf.Tensor:
        """Computes attention for some of the tokens only.

        Args:
            qkv, num_heads, padding: as in `attend`.
            indices: int32 `[batch, n]`, the tokens' indices in their sequences, in the order of
                `packing`.
            index_rows: int32 `[batch, n]`, the tokens' rows.

        Returns:
            float `[batch * n + padding, hidden_dim]`.
        """

        def attend_group(group: Any, rows: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            sequences = self._packing.sequences_of(group)
            branches = None if self._branches is None else tf.gather(self._branches, rows)
            is_visible = visible_keys_at(indices[sequences], tf.shape(rows)[1], branches)
            _, key, value = gather_heads(qkv, rows, num_heads)
            query = gather_heads(qkv, index_rows[sequences], num_heads)[0]
            attended = join_heads(attention(query, key, value, is_visible))
            return tf.reshape(attended, [-1, attended.shape[2]])  # [tokens, hidden_dim]

        return self._join_groups(attend_group, _zeros(qkv, padding))

    def _read_group(self, group: Any) -> list[tf.Tensor]:
        """Returns a group's rows by slot, its slots by row, and which keys are visible."""
        rows = self._packing.rows_of(group)
        length = tf.shape(rows)[1]
        branches = None if self._branches is None else tf.gather(self._branches, rows)
        return [rows, self._packing.slots_of(group), visible_keys(length, length, branches)]

    def _join_groups(self, attend_group: Callable[..., tf.Tensor], last: tf.Tensor) -> tf.Tensor:
        """Returns what a function returns for each group, and then `last`, on the first axis.

        The function takes a group's number, and what `_read_group` returns.
        """

        def attend_groups() -> tf.Tensor:
            count = self._packing.num_groups
            array = tf.TensorArray(
                last.dtype, count + 1, infer_shape=False, element_shape=[None, last.shape[1]]
            )
            _, array = tf.while_loop(
                lambda group, _: group < count,
                lambda group, array: (
                    group + 1,
                    array.write(group, attend_group(group, *self._read_group(group))),
                ),
                (0, array.write(count, last)),
                parallel_iterations=1,
            )
            return array.concat()

        return call_if(
            self._packing.num_groups > 1,
            attend_groups,
            lambda: tf.concat([attend_group(0, *self._first_group), last], axis=0),
        )


def gather_heads(qkv: tf.Tensor, rows: tf.Tensor, num_heads: int) -> list[tf.Tensor]:
    """Returns queries, keys and values of some rows, by head.

    One gather does both: a transposition would pass over the memory once more.

    Args:
        qkv: float `[all rows, 3 * hidden_dim]`.
        rows: int32 `[n, length]`.

    Returns:
        Three tensors, float `[n, heads, length, head_dim]`.
    """
    heads = tf.reshape(tf.range(3 * num_heads), [3, 1, num_heads, 1])
    flat = tf.reshape(qkv, [-1, qkv.shape[-1] // (3 * num_heads)])  # [rows * 3 * heads, head_dim]
    return tf.unstack(tf.gather(flat, 3 * num_heads * rows[:, tf.newaxis] + heads))


def _gather_slots(by_head: tf.Tensor, slots: tf.Tensor) -> tf.Tensor:
    """Returns the heads of some slots side by side: the inverse of `gather_heads`, in one gather.

    Args:
        by_head: float `[n, heads, length, head_dim]`.
        slots: int32 `[rows]`, below `n * length`.

    Returns:
        float `[rows, heads * head_dim]`.
    """
    num_heads, head_dim = by_head.shape[1], by_head.shape[3]
    length = tf.shape(by_head)[2]
    sequences, columns = slots // length, slots % length
    heads = num_heads * sequences[:, tf.newaxis] + tf.range(num_heads)  # [rows, heads]
    flat = tf.reshape(by_head, [-1, head_dim])  # [n * heads * length, head_dim]
    found = tf.gather(flat, heads * length + columns[:, tf.newaxis])  # [rows, heads, head_dim]
    return tf.reshape(found, [-1, num_heads * head_dim])


def _zeros(qkv: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Returns rows of zeros, of the width and dtype of what attention returns for `qkv`."""
    return tf.zeros([rows, qkv.shape[1] // 3], qkv.dtype)

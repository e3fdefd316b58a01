"""Attention among the tokens of packed sequences, a group at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from gpt1_keras.models.attention import attention, attention_by_head
from gpt1_keras.models.attention_scores import visible_keys
from serving.export.decoder.packing import Packing


class PackedAttention:
    """Attends to the same and all earlier tokens of the same sequence.

    What all blocks share, where each group's tokens are and what they see, is found once.

    Args:
        packing: where the rows' tokens are.
        branches: optional int32 `[rows]`, for branches after a shared prefix; see
            `gpt1_keras.models.attention_scores`.
    """

    def __init__(self, packing: Packing, branches: tf.Tensor | None = None) -> None:
        self._packing, self._branches = packing, branches
        visible_shape = [None, None] if branches is None else [None, 1, None, None]
        self._rows, self._slots, self._visible = _map(
            self._of_group,
            packing.num_groups,
            [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
            + [tf.TensorSpec(visible_shape, tf.bool)],
        )

    def of_all(self, qkv: tf.Tensor, num_heads: int, padding: tf.Tensor) -> tf.Tensor:
        """Attends from every token.

        Args:
            qkv: float `[rows, 3 * hidden_dim]`, queries, keys and values; further rows are padding.
            num_heads: number of heads.
            padding: int32 scalar, how many rows to append.

        Returns:
            float `[rows + padding, hidden_dim]`.
        """
        width = qkv.shape[1] // 3

        def attend(group: tf.Tensor) -> list[tf.Tensor]:
            query, key, value = heads_of(qkv, self._rows.read(group), num_heads)
            found = attention_by_head(query, key, value, self._visible.read(group))
            return [_joined(found, self._slots.read(group))]

        return self._concatenate(attend, width, qkv.dtype, padding)

    def of_asked(
        self,
        qkv: tf.Tensor,
        num_heads: int,
        padding: tf.Tensor,
        asked: tf.Tensor,
        asked_rows: tf.Tensor,
    ) -> tf.Tensor:
        """Attends from some tokens alone.

        Args:
            qkv, num_heads, padding: as in `of_all`.
            asked: int32 `[batch, n]`, their indices in their sequences, which `packing` orders.
            asked_rows: int32 `[batch, n]`, their rows.

        Returns:
            float `[batch * n + padding, hidden_dim]`.
        """
        width = qkv.shape[1] // 3

        def attend(group: tf.Tensor) -> list[tf.Tensor]:
            of_group, rows = self._packing.sequences_of(group), self._rows.read(group)
            is_visible = tf.range(tf.shape(rows)[1]) <= asked[of_group, :, tf.newaxis]
            if self._branches is not None:
                of_keys = tf.gather(self._branches, rows)[:, tf.newaxis]
                of_queries = tf.gather(self._branches, asked_rows[of_group])[:, :, tf.newaxis]
                is_visible &= (of_keys == 0) | (of_keys == of_queries)
            _, key, value = heads_of(qkv, rows, num_heads)
            query, *_ = heads_of(qkv, asked_rows[of_group], num_heads)
            found = attention(query, key, value, is_visible[:, tf.newaxis])
            return [tf.reshape(found, [-1, width])]

        return self._concatenate(attend, width, qkv.dtype, padding)

    def _of_group(self, group: tf.Tensor) -> list[tf.Tensor]:
        """A group's rows by slot, its slots by row, and which keys are visible."""
        rows = self._packing.rows_of(group)
        length = tf.shape(rows)[1]
        branches = None if self._branches is None else tf.gather(self._branches, rows)
        return [rows, self._packing.slots_of(group), visible_keys(length, length, branches)]

    def _concatenate(
        self,
        of_group: Callable[[tf.Tensor], list[tf.Tensor]],
        width: int,
        dtype: tf.DType,
        padding: tf.Tensor,
    ) -> tf.Tensor:
        count = self._packing.num_groups
        last = tf.zeros([padding, width], dtype)
        return _map(of_group, count, [tf.TensorSpec([None, width], dtype)], [last])[0].concat()


def heads_of(qkv: tf.Tensor, rows: tf.Tensor, num_heads: int) -> list[tf.Tensor]:
    """Queries, keys and values of some rows, by head.

    In one gather: a transposition would pass over the memory once more.

    Args:
        qkv: float `[all rows, 3 * hidden_dim]`.
        rows: int32 `[n, length]`.
        num_heads: number of heads.

    Returns:
        Three of float `[n, heads, length, head_dim]`.
    """
    heads = tf.reshape(tf.range(3 * num_heads), [3, 1, num_heads, 1])
    flat = tf.reshape(qkv, [-1, qkv.shape[-1] // (3 * num_heads)])
    return tf.unstack(tf.gather(flat, 3 * num_heads * rows[:, tf.newaxis] + heads))


def _joined(by_head: tf.Tensor, slots: tf.Tensor) -> tf.Tensor:
    """The heads of some slots side by side: the way back from `heads_of`, in one gather too.

    Args:
        by_head: float `[n, heads, length, head_dim]`.
        slots: int32 `[rows]`, below `n * length`.

    Returns:
        float `[rows, heads * head_dim]`.
    """
    num_heads, head_dim = by_head.shape[1], by_head.shape[3]
    length = tf.shape(by_head)[2]
    sequences, columns = slots // length, slots % length
    heads = num_heads * sequences[:, tf.newaxis] + tf.range(num_heads)
    found = tf.gather(tf.reshape(by_head, [-1, head_dim]), heads * length + columns[:, tf.newaxis])
    return tf.reshape(found, [-1, num_heads * head_dim])


def _map(
    function: Callable[[tf.Tensor], list[tf.Tensor]],
    count: tf.Tensor,
    specs: Sequence[tf.TensorSpec],
    last: Sequence[tf.Tensor] = (),
) -> list[tf.TensorArray]:
    """What a function returns for 0, 1, ... below `count`, and then what is given as the last."""
    arrays = [
        tf.TensorArray(
            spec.dtype,
            count + len(last[:1]),
            infer_shape=False,
            element_shape=spec.shape,
            clear_after_read=False,
        )
        for spec in specs
    ]
    arrays = [array.write(count, each) for array, each in zip(arrays, last)] or arrays

    def step(number: tf.Tensor, arrays: Any) -> tuple[tf.Tensor, Any]:
        found = function(number)
        return number + 1, [array.write(number, each) for array, each in zip(arrays, found)]

    return tf.while_loop(
        lambda number, _: number < count, step, (0, arrays), parallel_iterations=1
    )[1]

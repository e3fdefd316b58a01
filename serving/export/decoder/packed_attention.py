"""Packs the tokens of sequences into the rows of one matrix, and lets them attend by group."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from gpt1_keras.models.attention import attention, join_heads, visible_keys, visible_keys_at
from gpt1_keras.tokenization.graph_ops import call_if, traced_once

# Attention's memory grows with a group's sequences times the square of their length. A group of
# more than this, 16 sequences of 512 tokens, is computed in parts.
_MAX_PAIRS = 2**22
_MORE_BUCKETS = (2, 4, 8)  # times the last one, for the branches of many choices


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


class Packing(NamedTuple):
    """Packs the tokens of sequences into rows: sequence after sequence, from short to long.

    If two sequences begin with the same tokens, the later one uses the earlier one's rows for them.

    For attention, sequences are padded. Those of one bucket are a *group*, padded to the longest of
    them and computed together; many or long ones are several groups. A batch without sequences is
    one group. A *slot* of a group holds one token or padding.

    Attributes:
        order: int32 `[batch]`, the indices of the sequences from short to long. Everything else
            here counts the sequences in this order.
        sequences: int32 `[rows]`, the sequence of each row.
        columns: int32 `[rows]`, the index of each row in its sequence.
        first: int32 `[columns + 1, batch]`, of `first_with_prefix`.
        starts: int32 `[batch]`, the row that each sequence's first token has if it shares none.
        row_of_slot: int32 `[slots]`.
        slot_of_row: int32 `[rows]`.
        splits, row_splits, slot_splits: int32 `[groups + 1]`, the first sequence, row and slot of
            each group, and their numbers.
    """

    order: tf.Tensor
    sequences: tf.Tensor
    columns: tf.Tensor
    first: tf.Tensor
    starts: tf.Tensor
    row_of_slot: tf.Tensor
    slot_of_row: tf.Tensor
    splits: tf.Tensor
    row_splits: tf.Tensor
    slot_splits: tf.Tensor

    @classmethod
    def of(
        cls, features: Sequence[tf.Tensor], lengths: tf.Tensor, buckets: Sequence[int]
    ) -> "Packing":
        """Packs sequences.

        Args:
            features: int32 `[batch, length]` each, the numbers that decide each token's embedding
                and mask.
            lengths: int32 `[batch]`, the sequences' lengths, at least 1.
            buckets: ascending lengths; a bucket has the sequences that are longer than the one
                before, and at most this long. Further buckets are 2, 4 and 8 times as long as the
                last.
        """
        return call_if(
            tf.size(lengths) != 1,
            lambda: _pack(features, lengths, buckets),
            lambda: _pack_one(lengths),
        )

    @property
    def num_groups(self) -> tf.Tensor:
        """The number of groups, int32 scalar."""
        return tf.size(self.splits) - 1

    def row_of(self, sequence: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
        """Returns tokens' rows from their sequences and indices; int32 of one shape."""
        return _row_of(self.first, self.starts, sequence, column)

    def sequences_of(self, group: int | tf.Tensor) -> slice:
        """Returns the sequences of a group."""
        return slice(self.splits[group], self.splits[group + 1])

    def rows_of(self, group: int | tf.Tensor) -> tf.Tensor:
        """Returns the rows of a group's slots, int32 `[sequences, length]`."""
        rows = self.row_of_slot[self.slot_splits[group] : self.slot_splits[group + 1]]
        sequences = self.sequences_of(group)
        count = sequences.stop - sequences.start
        # Of no sequences, one column: ops that find an index by shapes do not take none.
        length = tf.maximum(tf.size(rows), 1) // tf.maximum(count, 1)
        return tf.reshape(rows, [count, length])

    def slots_of(self, group: int | tf.Tensor) -> tf.Tensor:
        """Returns the slots of a group's rows, counted from 0 in the group, int32 `[rows]`."""
        slots = self.slot_of_row[self.row_splits[group] : self.row_splits[group + 1]]
        return slots - self.slot_splits[group]


def _pack(features: Sequence[tf.Tensor], lengths: tf.Tensor, buckets: Sequence[int]) -> Packing:
    """Packs sequences; see `Packing.of`."""
    order = tf.argsort(lengths, stable=True)
    lengths = tf.gather(lengths, order)
    buckets = [*buckets, *(buckets[-1] * times for times in _MORE_BUCKETS)]
    bucket = tf.searchsorted(tf.constant(buckets, tf.int32), lengths)
    longest = tf.math.unsorted_segment_max(lengths, bucket, len(buckets) + 1)
    padded = tf.gather(longest, bucket)
    in_bucket = tf.range(tf.size(bucket)) - tf.searchsorted(bucket, bucket)
    part = in_bucket // tf.maximum(_MAX_PAIRS // padded // padded, 1)
    _, _, sizes = tf.unique_with_counts(bucket * tf.size(bucket) + part)
    sizes = _with_zero(sizes)[-tf.maximum(tf.size(sizes), 1) :]  # one group at least

    first = first_with_prefix(tf.gather(tf.stack(features, axis=-1), order), lengths)
    is_shared = first != tf.range(tf.size(lengths))
    shared = tf.reduce_sum(tf.cast(is_shared, tf.int32), axis=0)
    ends, slot_ends = tf.cumsum(lengths - shared), tf.cumsum(padded)
    starts, slot_starts = ends - lengths, slot_ends - padded
    sequences, columns = _enumerate(shared, lengths)
    sequence, column = _enumerate(tf.zeros_like(padded), padded)
    # Padding repeats the last token, and comes after every token, so none sees it.
    column = tf.minimum(column, tf.gather(lengths, sequence) - 1)
    splits = _with_zero(tf.cumsum(sizes))
    return Packing(
        order,
        sequences,
        columns,
        first,
        starts,
        row_of_slot=_row_of(first, starts, sequence, column),
        slot_of_row=tf.gather(slot_starts, sequences) + columns,
        splits=splits,
        row_splits=tf.gather(_with_zero(ends), splits),
        slot_splits=tf.gather(_with_zero(slot_ends), splits),
    )


def _pack_one(lengths: tf.Tensor) -> Packing:
    """Packs one sequence as `_pack` does: there is nothing to sort, share or pad."""
    zero, columns, splits = tf.constant([0]), tf.range(lengths[0]), _with_zero(lengths)
    return Packing(
        order=zero,
        sequences=tf.zeros_like(columns),
        columns=columns,
        first=zero[tf.newaxis],
        starts=zero,
        row_of_slot=columns,
        slot_of_row=columns,
        splits=tf.constant([0, 1]),
        row_splits=splits,
        slot_splits=splits,
    )


def _row_of(
    first: tf.Tensor, starts: tf.Tensor, sequence: tf.Tensor, column: tf.Tensor
) -> tf.Tensor:
    """Returns tokens' rows; see `Packing`."""
    last = tf.shape(first)[0] - 1
    owner = tf.gather_nd(first, tf.stack([tf.minimum(column, last), sequence], axis=-1))
    return tf.gather(starts, owner) + column


def _enumerate(starts: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the sequence of each token between these indices, and its index in it."""
    column = tf.range(tf.reduce_max(tf.concat([ends, [0]], axis=0)))
    is_here = (column >= starts[:, tf.newaxis]) & (column < ends[:, tf.newaxis])
    found = tf.cast(tf.where(is_here), tf.int32)
    return found[:, 0], found[:, 1]


def _with_zero(numbers: tf.Tensor) -> tf.Tensor:
    return tf.concat([[0], numbers], axis=0)


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

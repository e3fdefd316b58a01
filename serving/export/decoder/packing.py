"""Packs the tokens of sequences into the rows of one matrix, and groups them for attention."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from serving.export.decoder.prefixes import first_with_prefix

# Attention's memory grows with a group's sequences times the square of their length. A group of
# more than this, 16 sequences of 512 tokens, is computed in parts.
_MAX_PAIRS = 2**22
_MORE_BUCKETS = (2, 4, 8)  # times the last one, for the branches of many choices

OfGroup: TypeAlias = Callable[[Any], list[tf.Tensor]]  # a function of a group's number


class Packing:
    """Packs the tokens of sequences into rows: sequence after sequence, from short to long.

    If two sequences begin with the same tokens, the later one uses the earlier one's rows for them.

    For attention, sequences are padded. Those of one bucket are a *group*, padded to the longest of
    them and computed together; many or long ones are several groups. A *slot* of a group holds one
    token or padding.

    Args:
        features: int32 `[batch, length]` each, the numbers that decide each token's embedding and
            mask.
        lengths: int32 `[batch]`, the sequences' lengths, at least 1.
        buckets: ascending lengths; a bucket has the sequences that are longer than the one before,
            and at most this long. Further buckets are 2, 4 and 8 times as long as the last.

    Attributes:
        order: int32 `[batch]`, the indices of the sequences from short to long. Everything else
            here counts the sequences in this order.
        sequences: int32 `[rows]`, the sequence of each row.
        columns: int32 `[rows]`, the index of each row in its sequence.
        num_groups: int32 scalar.
    """

    def __init__(
        self, features: Sequence[tf.Tensor], lengths: tf.Tensor, buckets: Sequence[int]
    ) -> None:
        self.order = tf.argsort(lengths, stable=True)
        lengths = tf.gather(lengths, self.order)
        buckets = [*buckets, *(buckets[-1] * times for times in _MORE_BUCKETS)]
        bucket = tf.searchsorted(tf.constant(buckets, tf.int32), lengths)
        longest = tf.math.unsorted_segment_max(lengths, bucket, len(buckets) + 1)
        padded = tf.gather(longest, bucket)
        in_bucket = tf.range(tf.size(bucket)) - tf.searchsorted(bucket, bucket)
        part = in_bucket // tf.maximum(_MAX_PAIRS // padded // padded, 1)
        _, _, sizes = tf.unique_with_counts(bucket * tf.size(bucket) + part)
        self.num_groups = tf.size(sizes)

        self._first = first_with_prefix(tf.gather(tf.stack(features, axis=-1), self.order), lengths)
        is_shared = self._first != tf.range(tf.size(lengths))
        shared = tf.reduce_sum(tf.cast(is_shared, tf.int32), axis=0)
        ends, slot_ends = tf.cumsum(lengths - shared), tf.cumsum(padded)
        self._starts, slot_starts = ends - lengths, slot_ends - padded
        self.sequences, self.columns = _enumerate(shared, lengths)
        sequence, column = _enumerate(tf.zeros_like(padded), padded)
        # Padding repeats the last token, and comes after every token, so none sees it.
        self._row_of_slot = self.row_of(
            sequence, tf.minimum(column, tf.gather(lengths, sequence) - 1)
        )
        self._slot_of_row = tf.gather(slot_starts, self.sequences) + self.columns

        self._splits = _with_zero(tf.cumsum(sizes))
        self._row_splits = tf.gather(_with_zero(ends), self._splits)
        self._slot_splits = tf.gather(_with_zero(slot_ends), self._splits)

    def row_of(self, sequence: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
        """Returns tokens' rows from their sequences and indices; int32 of one shape."""
        last = tf.shape(self._first)[0] - 1
        first = tf.gather_nd(self._first, tf.stack([tf.minimum(column, last), sequence], axis=-1))
        return tf.gather(self._starts, first) + column

    def of_groups(self, function: OfGroup, specs: Sequence[tf.TensorSpec]) -> OfGroup:
        """Returns the same function, computed once for each group. Its tensors have these specs."""
        arrays = _collect(function, self.num_groups, specs)
        return lambda group: [array.read(group) for array in arrays]

    def join_groups(self, function: Callable[[Any], tf.Tensor], last: tf.Tensor) -> tf.Tensor:
        """Returns what the function returns for each group, and then `last`, on the first axis."""
        spec = tf.TensorSpec([None, *last.shape[1:]], last.dtype)
        [rows] = _collect(lambda group: [function(group)], self.num_groups, [spec], [last])
        return rows.concat()

    def sequences_of(self, group: tf.Tensor) -> slice:
        """Returns the sequences of a group."""
        return slice(self._splits[group], self._splits[group + 1])

    def rows_of(self, group: tf.Tensor) -> tf.Tensor:
        """Returns the rows of a group's slots, int32 `[sequences, length]`."""
        rows = self._row_of_slot[self._slot_splits[group] : self._slot_splits[group + 1]]
        sequences = self.sequences_of(group)
        return tf.reshape(rows, [sequences.stop - sequences.start, -1])

    def slots_of(self, group: tf.Tensor) -> tf.Tensor:
        """Returns the slots of a group's rows, counted from 0 in the group, int32 `[rows]`."""
        slots = self._slot_of_row[self._row_splits[group] : self._row_splits[group + 1]]
        return slots - self._slot_splits[group]


class OneSequence:
    """What `Packing` is for a batch of one sequence: there is nothing to sort, group or pad.

    Without loops over a single group, one text is answered sooner (docs/benchmarks.md, "Serving").

    Args:
        length: int32 scalar, at least 1.
    """

    def __init__(self, length: tf.Tensor) -> None:
        self.order = tf.constant([0])
        self.columns = tf.range(length)
        self.sequences = tf.zeros_like(self.columns)

    def row_of(self, sequence: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
        return column

    def of_groups(self, function: OfGroup, specs: Sequence[tf.TensorSpec]) -> OfGroup:
        found = function(0)
        return lambda group: found

    def join_groups(self, function: Callable[[Any], tf.Tensor], last: tf.Tensor) -> tf.Tensor:
        return tf.concat([function(0), last], axis=0)

    def sequences_of(self, group: int) -> slice:
        return slice(0, 1)

    def rows_of(self, group: int) -> tf.Tensor:
        return self.columns[tf.newaxis]

    def slots_of(self, group: int) -> tf.Tensor:
        return self.columns


AnyPacking: TypeAlias = Packing | OneSequence


def _collect(
    function: OfGroup,
    count: tf.Tensor,
    specs: Sequence[tf.TensorSpec],
    last: Sequence[tf.Tensor] = (),
) -> list[tf.TensorArray]:
    """Returns arrays of a function's results for 0 to `count` - 1, and then of `last`."""
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


def _enumerate(starts: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the sequence of each token between these indices, and its index in it."""
    column = tf.range(tf.reduce_max(tf.concat([ends, [0]], axis=0)))
    is_here = (column >= starts[:, tf.newaxis]) & (column < ends[:, tf.newaxis])
    found = tf.cast(tf.where(is_here), tf.int32)
    return found[:, 0], found[:, 1]


def _with_zero(numbers: tf.Tensor) -> tf.Tensor:
    return tf.concat([[0], numbers], axis=0)

"""Where the tokens of sequences are, as the rows of one matrix and in attention."""

from collections.abc import Sequence

import tensorflow as tf


class Packing:
    """The tokens of sequences as rows: sequence after sequence, from short to long.

    For attention, sequences are padded. Those of one bucket are a *group*, which is computed
    together; a *slot* is a place for a token in a group, or for padding.

    Args:
        lengths: int32 `[batch]`, of the sequences, at least 1.
        buckets: ascending lengths that groups are padded to; the sequences beyond the last are a
            group, too, which is padded to its longest.

    Attributes:
        order: int32 `[batch]`, the sequences from short to long. All else numbers them so.
        sequences: int32 `[rows]`, the sequence of each row.
        columns: int32 `[rows]`, the index of each row in its sequence.
        starts: int32 `[batch]`, the row of each sequence's first token.
        num_groups: int32 scalar.
    """

    def __init__(self, lengths: tf.Tensor, buckets: Sequence[int]) -> None:
        self.order = tf.argsort(lengths, stable=True)
        lengths = tf.gather(lengths, self.order)
        bucket = tf.searchsorted(tf.constant(buckets, tf.int32), lengths)
        _, _, sizes = tf.unique_with_counts(bucket)
        self.num_groups = tf.size(sizes)
        padded = tf.gather([*buckets, tf.int32.max], bucket)
        padded = tf.minimum(padded, tf.maximum(tf.reduce_max(lengths), buckets[-1]))

        ends, slot_ends = tf.cumsum(lengths), tf.cumsum(padded)
        self.starts, slot_starts = ends - lengths, slot_ends - padded
        self.sequences, self.columns = _enumerate(lengths)
        sequence, column = _enumerate(padded)
        # Padding repeats the last token, which comes after all that see it.
        column = tf.minimum(column, tf.gather(lengths, sequence) - 1)
        self._row_of_slot = tf.gather(self.starts, sequence) + column
        self._slot_of_row = tf.gather(slot_starts, self.sequences) + self.columns

        self._splits = _with_zero(tf.cumsum(sizes))
        self._row_splits = tf.gather(_with_zero(ends), self._splits)
        self._slot_splits = tf.gather(_with_zero(slot_ends), self._splits)

    def sequences_of(self, group: tf.Tensor) -> slice:
        """The sequences of a group."""
        return slice(self._splits[group], self._splits[group + 1])

    def rows_of(self, group: tf.Tensor) -> tf.Tensor:
        """The rows of a group's slots, int32 `[sequences, length]`."""
        rows = self._row_of_slot[self._slot_splits[group] : self._slot_splits[group + 1]]
        of_group = self.sequences_of(group)
        return tf.reshape(rows, [of_group.stop - of_group.start, -1])

    def slots_of(self, group: tf.Tensor) -> tf.Tensor:
        """The slots of a group's rows, from 0 for its first, int32 `[rows]`."""
        slots = self._slot_of_row[self._row_splits[group] : self._row_splits[group + 1]]
        return slots - self._slot_splits[group]


def _enumerate(lengths: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The sequence, and the index in it, of each token of sequences of these lengths."""
    found = tf.cast(tf.where(tf.sequence_mask(lengths)), tf.int32)
    return found[:, 0], found[:, 1]


def _with_zero(numbers: tf.Tensor) -> tf.Tensor:
    return tf.concat([[0], numbers], axis=0)

"""A hash table from pairs of symbols to integers, as plain integer tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpt1_keras.lazy import tensorflow as tf

ABSENT = np.int32(2**31 - 1)  # what a table of int32 returns for a pair that it lacks
_MAX_ROUNDS = 500


class PairTable:
    """Looks up the value of each pair of adjacent symbols.

    It is a cuckoo hash table (Pagh and Rodler, 2004): every pair lies in one of two slots. So a
    lookup is two gathers for any number of pairs, and needs no table resource.

    Args:
        left, right: int arrays `[pairs]`, the symbols' ids, not negative. No pair occurs twice.
        values: int array `[pairs]` or `[pairs, k]`, of numbers up to `absent`, the dtype's largest,
            which is the value of a pair that the table lacks.
        dtype: of the table's ids and values: int32; or uint16, which halves the table where all
            are below 2^16 - 1, but which LiteRT cannot look up.
    """

    def __init__(
        self,
        left: np.ndarray,
        right: np.ndarray,
        values: np.ndarray | Sequence[int],
        dtype: type[np.int32] | type[np.uint16] = np.int32,
    ) -> None:
        self.absent = np.int32(np.iinfo(dtype).max)
        rows = np.column_stack([left, right, values]).astype(np.int32)
        # A cuckoo table must be less than half full. The sum of two odd factors is even, so pairs
        # of equal symbols have even hashes, which only an odd length spreads over all slots.
        self._half = 5 * len(rows) // 4 | 1
        random = np.random.default_rng(0)
        slots = None
        while slots is None:
            self._factors = random.integers(1, 2**30, (2, 2, 1), np.int32) * 2 + 1
            slots = _assign_slots(self._slots(rows[:, 0], rows[:, 1]), 2 * self._half)
        table = np.full((2 * self._half, rows.shape[1]), -1, np.int32)
        table[slots >= 0] = rows[slots[slots >= 0]]
        self._rows = tf.constant(table.astype(dtype))

    def _slots(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        """Returns the two slots of each pair, one in each half of the table: int32 `[2, n]`."""
        mixed = left * self._factors[0] + right * self._factors[1]  # int32 products wrap around
        return mixed % self._half + np.array([[0], [self._half]], np.int32)

    def __call__(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor | list[tf.Tensor]:
        """Looks up pairs of symbols' ids, int32 `[n]` each.

        Returns each pair's value or `absent`, int32 `[n]`; for values `[pairs, k]`, a list of k of
        them.
        """
        rows = tf.gather(self._rows, self._slots(left, right))  # (2, n, 2 + values)
        rows = tf.cast(rows, tf.int32)
        lefts, rights, *columns = tf.unstack(rows, axis=-1)
        found = (lefts == left) & (rights == right)
        absent = tf.constant(self.absent)
        values = [tf.reduce_min(tf.where(found, column, absent), axis=0) for column in columns]
        return values[0] if len(values) == 1 else values


def _assign_slots(candidates: np.ndarray, size: int) -> np.ndarray | None:
    """Puts every item in one of its two slots, `candidates`, int `[2, items]`.

    An item that needs a slot evicts the one in it. Returns the index of the item in each slot or
    -1, int `[size]`; None when an item is left without a slot.
    """
    items = np.full(size, -1)
    candidate = np.zeros(len(candidates[0]), np.int64)  # the one that each item is in, or tries
    unplaced = np.arange(len(candidate))
    for _ in range(_MAX_ROUNDS):
        if not len(unplaced):
            return items
        wanted = candidates[candidate[unplaced], unplaced]
        evicted = items[wanted]
        items[wanted] = unplaced  # where several items want a slot, the last one gets it
        placed = items[wanted] == unplaced
        unplaced = np.union1d(unplaced[~placed], evicted[placed & (evicted >= 0)])
        candidate[unplaced] ^= 1
    return None

"""The tables that the graph looks up: of code points, pairs and strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.graph_ops import row_indices, row_splits

CODE_POINTS = 0x110000
_PAGE_BITS = 7
_PAGE = 1 << _PAGE_BITS

ABSENT = np.int32(2**31 - 1)  # what a table of int32 returns for a pair that it lacks
_MAX_ROUNDS = 500
_HASHES = 2**62
_NOT_UTF8 = b"\xff"


class CodePointTable:
    """Maps every code point to an int32, and keeps each distinct page of 128 values once.

    Most of Unicode consists of large blocks whose code points behave alike, so a few dozen pages
    stand for 1.1 million values. A lookup is two gathers.
    """

    def __init__(self, values: np.ndarray) -> None:
        pages, page_of = distinct_pages(values)
        self._values = tf.constant(pages.reshape(-1))
        self._offsets = tf.constant(page_of.astype(np.int32) << _PAGE_BITS)

    def __call__(self, code_points: tf.Tensor) -> tf.Tensor:
        """Returns the values of code points: int32 of any shape to int32 of the same shape."""
        page = tf.bitwise.right_shift(code_points, _PAGE_BITS)
        # Not bitwise_and, which LiteRT lacks.
        return tf.gather(self._values, tf.gather(self._offsets, page) + code_points - page * _PAGE)


def distinct_pages(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds the distinct pages of 128 values of one value per code point, int `[0x110000]`.

    Returns `(pages, page_of)`: int32 `[p, 128]`; and uint16 `[0x110000 / 128]`, the index of the
    page of each run of 128 code points. Raises ValueError for another shape.
    """
    if np.shape(values) != (CODE_POINTS,):
        raise ValueError(
            f"A table needs one value for each of the {CODE_POINTS} code points. "
            f"Received values of shape {np.shape(values)}."
        )
    pages: dict[bytes, int] = {}
    values = np.asarray(values, np.int32).reshape(-1, _PAGE)
    page_of = [pages.setdefault(page.tobytes(), len(pages)) for page in values]
    distinct = np.frombuffer(b"".join(pages), np.int32).reshape(-1, _PAGE)
    return distinct, np.array(page_of, np.uint16)


class CodePointMap:
    """Replaces code points of texts by any number of code points.

    `entries`, int `[0x110000]`, are the index of each code point's replacement, or 0 if it stays;
    the first of the replacements, strings, is not used.
    """

    def __init__(self, entries: np.ndarray, replacements: Sequence[str]) -> None:
        counts = np.array([1, *map(len, replacements[1:])], np.int32)
        self._entry = CodePointTable(entries)
        self._counts = tf.constant(counts)
        self._starts = tf.constant(np.cumsum(counts) - counts, tf.int32)
        self._code_points = tf.constant([0, *map(ord, "".join(replacements[1:]))])

    @classmethod
    def from_mapping(cls, replacements: Mapping[str, str]) -> CodePointMap:
        """Makes a map from code points, as strings, to their replacements."""
        entries = np.zeros(CODE_POINTS, np.int32)
        entries[[ord(each) for each in replacements]] = 1 + np.arange(len(replacements))
        return cls(entries, ["", *replacements.values()])

    def __call__(self, texts: tf.RaggedTensor) -> tf.RaggedTensor:
        """Replaces code points of texts: int32 `[n, None]` to int32 `[n, None]`."""
        return self.with_sources(texts)[0]

    def with_sources(self, texts: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Also returns, for each new code point, the index of the old one: int32 `[m]`."""
        codes = texts.values
        entry = self._entry(codes)
        starts = row_splits(tf.gather(self._counts, entry))
        source = row_indices(starts)
        entry = tf.gather(entry, source)
        offset = tf.range(starts[-1]) - tf.gather(starts, source)
        replacement = tf.gather(self._code_points, tf.gather(self._starts, entry) + offset)
        codes = tf.where(entry > 0, replacement, tf.gather(codes, source))
        splits = tf.cast(tf.gather(starts, texts.row_splits), tf.int64)
        return tf.RaggedTensor.from_row_splits(codes, splits, validate=False), source


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


class StringTable:
    """Maps distinct strings to values, a tensor `[strings]` of any dtype.

    The strings are sorted by their hashes. So a lookup is a binary search and one comparison of
    strings, and needs no table resource. Raises ValueError if two have the same hash.
    """

    def __init__(self, strings: Sequence[str], values: tf.Tensor) -> None:
        encoded = np.array([string.encode() for string in strings], object)
        hashes = tf.strings.to_hash_bucket_fast(tf.constant(encoded, tf.string), _HASHES).numpy()
        order = np.argsort(hashes)
        if (np.diff(hashes[order]) == 0).any():
            raise ValueError(f"Two of the {len(encoded)} strings of a table have the same hash.")
        # The search finds the last entry for hashes above all others; its string equals no other.
        self._hashes = tf.constant([[*hashes[order], _HASHES]])
        self._strings = tf.constant([*encoded[order], _NOT_UTF8])
        self._values = tf.concat([tf.gather(values, order), tf.zeros([1], values.dtype)], 0)

    def __call__(self, strings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Looks up strings, UTF-8 of any shape.

        Returns `(values, is_known)`, of the same shape: each string's value, or any other value if
        the table lacks it; and bool.
        """
        hashes = tf.strings.to_hash_bucket_fast(strings, _HASHES)
        entry = tf.raw_ops.LowerBound(
            sorted_inputs=self._hashes, values=tf.reshape(hashes, [1, -1])
        )
        entry = tf.reshape(entry, tf.shape(strings))
        return tf.gather(self._values, entry), tf.gather(self._strings, entry) == strings

"""A lookup table over strings, as plain tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpt1_keras.lazy import tensorflow as tf

_HASHES = 2**62


class StringTable:
    """Finds strings in a fixed list.

    The list is sorted by its strings' hashes, so a lookup is a binary search and one comparison of
    strings, and needs no table resource.

    Args:
        strings: distinct strings.

    Raises:
        ValueError: two strings have the same hash.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        encoded = np.array([string.encode() for string in strings], object)
        hashes = tf.strings.to_hash_bucket_fast(tf.constant(encoded, tf.string), _HASHES).numpy()
        order = np.argsort(hashes)
        if (np.diff(hashes[order]) == 0).any():
            raise ValueError(f"Two of the {len(encoded)} strings of a table have the same hash.")
        # The last entry is found for hashes beyond all others.
        self._hashes = tf.constant([[*hashes[order], _HASHES]])
        self._strings = tf.constant([*encoded[order], b""])
        self._indices = tf.constant([*order, -1], tf.int32)

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Returns the index in the list of each string, or -1: string `[n]` to int32 `[n]`."""
        hashes = tf.strings.to_hash_bucket_fast(strings, _HASHES)
        entry = tf.raw_ops.LowerBound(sorted_inputs=self._hashes, values=hashes[None])[0]
        found = tf.gather(self._strings, entry) == strings
        return tf.where(found, tf.gather(self._indices, entry), -1)

"""A lookup table over strings, as plain tensors."""

import numpy as np

from gpt1_keras.lazy import tensorflow as tf

_HASHES = 2**62


class StringTable:
    """Finds strings in a fixed list.

    The list is kept in the order of its strings' hashes, so a lookup is a binary search and one
    comparison of strings, and needs no table resource.

    Args:
        strings: list of distinct strings.
    """

    def __init__(self, strings):
        strings = np.array([string.encode() for string in strings], object)
        hashes = tf.strings.to_hash_bucket_fast(tf.constant(strings, tf.string), _HASHES).numpy()
        order = np.argsort(hashes)
        if (np.diff(hashes[order]) == 0).any():
            raise ValueError(f"Two of the {len(strings)} strings of a table have the same hash.")
        # The last entry is found for hashes beyond all others.
        self._hashes = tf.constant([[*hashes[order], _HASHES]])
        self._strings = tf.constant([*strings[order], b""])
        self._numbers = tf.constant([*order, -1], tf.int32)

    def __call__(self, strings):
        """The number in the list of each string, or -1.

        Args:
            strings: string `[n]`.

        Returns:
            int32 `[n]`.
        """
        hashes = tf.strings.to_hash_bucket_fast(strings, _HASHES)
        place = tf.raw_ops.LowerBound(sorted_inputs=self._hashes, values=hashes[None])[0]
        found = tf.gather(self._strings, place) == strings
        return tf.where(found, tf.gather(self._numbers, place), -1)

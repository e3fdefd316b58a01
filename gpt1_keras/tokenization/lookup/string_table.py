"""A lookup table over strings, as plain tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpt1_keras.lazy import tensorflow as tf

_HASHES = 2**62
_NOT_UTF8 = b"\xff"


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

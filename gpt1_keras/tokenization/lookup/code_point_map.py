"""A map from each code point to the text that replaces it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.code_point_table import CODE_POINTS, CodePointTable
from gpt1_keras.tokenization.ragged import row_indices, row_splits


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

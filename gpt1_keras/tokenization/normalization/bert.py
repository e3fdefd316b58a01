"""The `bert` normalization: text to words of normalized letters.

Its words are those of Hugging Face's BertNormalizer(lowercase=True) and BertPreTokenizer: control
characters are dropped, white space separates words, punctuation and CJK characters stand alone,
accents are removed and letters lower-cased. Each code point is normalized independently of its
neighbours, so a table holds the result. (One exception: some 200 rare combining marks are kept,
such as Javanese virama or the newest of Unicode. Two adjacent ones stay as typed, where Hugging
Face may swap them.)
"""

from __future__ import annotations

import os

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.code_point_table import CodePointTable
from gpt1_keras.tokenization.lookup.ragged import row_indices
from gpt1_keras.tokenization.normalization.base import Normalizer

TABLE_FILE = "bert_table.npz"

# What a code point does to the word around it.
DROPPED, SPACE, ISOLATED, LETTER = range(4)

# Hangul syllables decompose by arithmetic (The Unicode Standard, section 3.12).
_SYLLABLE, _LEAD, _VOWEL, _TRAIL = 0xAC00, 0x1100, 0x1161, 0x11A7
_SYLLABLES, _SYLLABLES_PER_LEAD, _SYLLABLES_PER_VOWEL = 11172, 588, 28


class BertNormalizer(Normalizer):
    """Splits texts into words as Hugging Face's tokenizer for GPT-1 does."""

    name = "bert"
    line_end = None

    def __init__(self) -> None:
        path = os.path.join(os.path.dirname(__file__), TABLE_FILE)
        with np.load(path, allow_pickle=False) as arrays:
            self._kind, self._count, self._shift, self._second, self._third = (
                CodePointTable(arrays[f"{name}_pages"], arrays[f"{name}_page_of"])
                for name in ("kind", "count", "shift", "second", "third")
            )

    def split(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Splits texts into chunks of one word each; see `Normalizer`. Drops invalid bytes."""
        code_points = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        rows = tf.cast(row_indices(code_points.row_splits), tf.int32)
        letters, starts, rows = self(code_points.values, rows)
        starts = tf.where(starts)[:, 0]
        words = tf.RaggedTensor.from_row_starts(letters, starts, validate=False)
        distinct, indices = tf.unique(tf.strings.unicode_encode(words, "UTF-8"))
        chunks = tf.RaggedTensor.from_value_rowids(
            indices,
            tf.cast(tf.gather(rows, starts), tf.int64),
            nrows=code_points.nrows(),
            validate=False,
        )
        return chunks, tf.RaggedTensor.from_uniform_row_length(distinct, 1)

    def __call__(
        self, code_points: tf.Tensor, rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Splits flat code points into words.

        Args:
            code_points: int32 `[n]`, the texts' code points, one text after the other.
            rows: int32 `[n]`, the index of the text that each belongs to, ascending.

        Returns:
            `(letters, starts, rows)`: int32, bool and int32 `[m]`: the normalized letters of all
            words, whether each is the first of its word, and the index of its text.
        """
        count = self._count(code_points)
        source = tf.repeat(tf.range(tf.size(code_points)), count)
        letters = tf.cond(
            tf.reduce_any(count > 1),
            lambda: self._expand(code_points, count, source),
            lambda: tf.gather(code_points + self._shift(code_points), source),
        )
        kind = tf.gather(self._kind(code_points), source)
        rows = tf.gather(rows, source)
        alone = kind == ISOLATED
        # A word starts at its text's first letter, at a letter that stands alone, and after one.
        after = (kind == SPACE) | alone | tf.concat([rows[1:] != rows[:-1], [True]], 0)
        starts = alone | tf.roll(after, 1, 0)
        kept = tf.where(kind != SPACE)[:, 0]
        return tf.gather(letters, kept), tf.gather(starts, kept), tf.gather(rows, kept)

    def _expand(self, code_points: tf.Tensor, count: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
        """The letters, int32 `[m]`, where some code points become two or three."""
        offset = tf.range(tf.size(source)) - tf.gather(tf.cumsum(count, exclusive=True), source)
        code_points = tf.gather(code_points, source)
        syllable = code_points - _SYLLABLE
        is_hangul = (syllable >= 0) & (syllable < _SYLLABLES)
        lead = _LEAD + syllable // _SYLLABLES_PER_LEAD
        vowel = _VOWEL + syllable % _SYLLABLES_PER_LEAD // _SYLLABLES_PER_VOWEL
        trail = _TRAIL + syllable % _SYLLABLES_PER_VOWEL
        first = tf.where(is_hangul, lead, code_points + self._shift(code_points))
        second = tf.where(is_hangul, vowel, self._second(code_points))
        third = tf.where(is_hangul, trail, self._third(code_points))
        return tf.where(offset == 0, first, tf.where(offset == 1, second, third))

"""Repairs of single code points, and composition of characters with combining marks."""

from __future__ import annotations

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.alignment.aligned_texts import (
    AlignedTexts,
    Texts,
    is_ascii,
    strings_of,
)
from gpt1_keras.tokenization.control_flow import update_where
from gpt1_keras.tokenization.lookup.code_point_map import CodePointMap
from gpt1_keras.tokenization.lookup.pair_table import ABSENT, PairTable
from gpt1_keras.tokenization.normalization.original.resources import load_resources
from gpt1_keras.tokenization.ragged import row_splits

# Hangul syllables compose by arithmetic (The Unicode Standard, section 3.12).
_SYLLABLE, _LEAD, _VOWEL, _TRAIL = 0xAC00, 0x1100, 0x1161, 0x11A7
_SYLLABLES, _LEADS, _VOWELS, _TRAILS = 11172, 19, 21, 28


class CharacterRepair:
    """Makes ftfy's repairs of single code points, then composes characters with their marks (NFC).

    The repairs put straight quotes in place of curly ones, letters in place of ligatures, and
    ordinary widths in place of full and half widths. A mark is composed only with the character
    just before it: marks are not reordered first.
    """

    def __init__(self) -> None:
        tables = load_resources()
        self._replace = CodePointMap.from_mapping(tables["characters"])
        pairs = np.array([[ord(c) for c in pair] for pair in tables["compositions"]], np.int32)
        composed = [ord(c) for c in tables["compositions"].values()]
        self._composed = PairTable(pairs[:, 0], pairs[:, 1], composed)

    def __call__(self, lines: Texts) -> Texts:
        """Repairs lines, `[n]`."""
        return update_where(~is_ascii(lines), self._repair, lines)

    def _repair(self, lines: Texts) -> Texts:
        """Repairs lines, `[n]`, that are not all ASCII."""
        decoded = tf.strings.unicode_decode(strings_of(lines), "UTF-8")
        texts, source = self._replace.with_sources(decoded)
        is_aligned = isinstance(lines, AlignedTexts)
        ranges = [tf.gather(each, source) for each in lines[1:]] if is_aligned else []
        vector = tf.TensorShape([None])
        codes, splits, _, *ranges = tf.while_loop(
            lambda codes, splits, more, *ranges: more,
            self._compose,
            (texts.values, texts.row_splits, True, *ranges),
            shape_invariants=(vector, vector, tf.TensorShape([]), *[vector] * len(ranges)),
        )
        texts = tf.RaggedTensor.from_row_splits(codes, splits, validate=False)
        strings = tf.strings.unicode_encode(texts, "UTF-8")
        return AlignedTexts(strings, *ranges) if is_aligned else strings

    def _compose(
        self, codes: tf.Tensor, splits: tf.Tensor, more: tf.Tensor, *ranges: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Composes pairs of adjacent code points, every other one of a run of pairs.

        It takes and returns the code points of all texts, int32; their row splits; whether any pair
        was composed; and, of aligned texts, the code points' starts and ends.
        """
        left, right = codes[:-1], codes[1:]
        composed = _compose_hangul(left, right, self._composed(left, right))
        starts_line = tf.scatter_nd(splits[:, None], tf.ones_like(splits), [tf.size(codes) + 1])
        is_pair = (composed != ABSENT) & (starts_line[1:-1] == 0)
        is_pair &= ~tf.concat([[False], is_pair], 0)[:-1]
        codes = tf.concat([tf.where(is_pair, composed, left), codes[-1:]], 0)
        kept = tf.concat([[True], ~is_pair], 0)[: tf.size(codes)]
        before = row_splits(tf.cast(kept, tf.int64))
        if ranges:
            starts, ends = ranges
            ends = tf.concat([tf.where(is_pair, ends[1:], ends[:-1]), ends[-1:]], 0)
            ranges = (tf.boolean_mask(starts, kept), tf.boolean_mask(ends, kept))
        codes = tf.boolean_mask(codes, kept)
        return codes, tf.gather(before, splits), tf.reduce_any(is_pair), *ranges


def _compose_hangul(left: tf.Tensor, right: tf.Tensor, composed: tf.Tensor) -> tf.Tensor:
    """Sets what pairs compose to, int32 `[pairs]`, where it is a Hangul syllable."""
    lead, vowel, trail = left - _LEAD, right - _VOWEL, right - _TRAIL
    opens = (lead >= 0) & (lead < _LEADS) & (vowel >= 0) & (vowel < _VOWELS)
    syllable = left - _SYLLABLE
    closes = (syllable >= 0) & (syllable < _SYLLABLES) & (syllable % _TRAILS == 0)
    closes &= (trail > 0) & (trail < _TRAILS)
    composed = tf.where(opens, _SYLLABLE + (lead * _VOWELS + vowel) * _TRAILS, composed)
    return tf.where(closes, left + trail, composed)

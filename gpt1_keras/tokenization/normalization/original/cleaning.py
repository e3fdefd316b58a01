"""ftfy's repairs of text, and the characters that text_standardize replaces.

Most lines are plain ASCII without character references and need no repair, so only the other lines
are processed. As in ftfy, a line is repaired again until a repair changes nothing.
"""

from __future__ import annotations

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.aligned_texts import (
    AlignedTexts,
    Texts,
    is_ascii,
    put,
    regex_replace,
    strings_of,
    take,
    with_strings,
)
from gpt1_keras.tokenization.control_flow import repeat, update_where
from gpt1_keras.tokenization.lookup import ABSENT, CodePointMap, PairTable
from gpt1_keras.tokenization.normalization.original.repair import EntityDecoder, MojibakeRepair
from gpt1_keras.tokenization.normalization.original.resources import load_resources
from gpt1_keras.tokenization.padding import concatenate, row_indices, row_splits

# Hangul syllables compose by arithmetic (The Unicode Standard, section 3.12).
_SYLLABLE, _LEAD, _VOWEL, _TRAIL = 0xAC00, 0x1100, 0x1161, 0x11A7
_SYLLABLES, _LEADS, _VOWELS, _TRAILS = 11172, 19, 21, 28

# ftfy has no such bound. A second round is seldom needed; each decodes one level of `&amp;amp;`.
MAX_ROUNDS = 8
_PLAIN = r"[ -%'-~\t\n]*"  # printable ASCII without `&`
_DASHES, _ELLIPSIS, _ACUTE = "[—–―]", "…", "´"


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


class Cleaner:
    """Cleans texts, whose only white space is then spaces, tabs, newlines and form feeds."""

    def __init__(self) -> None:
        self._decode_entities = EntityDecoder()
        self._repair_mojibake = MojibakeRepair()
        self._repair_characters = CharacterRepair()
        self._patterns = load_resources()["patterns"]

    def __call__(self, texts: Texts) -> Texts:
        """Cleans texts, `[n]`: strings of UTF-8, possibly invalid, or aligned texts."""
        return update_where(~_is_plain(strings_of(texts)), self._clean, texts)

    def _clean(self, texts: Texts) -> Texts:
        """Cleans texts, `[n]`, that are not all plain."""
        if not isinstance(texts, AlignedTexts):  # aligned texts are valid UTF-8
            texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        lines = _split_lines(strings_of(texts))
        indices = tf.where(~_is_plain(lines.values))
        is_markup = tf.gather_nd(_is_markup(lines), indices)
        unrepaired = with_strings(texts, lines.values)
        repaired = repeat(
            lambda lines: self._repair(lines, is_markup), take(unrepaired, indices), MAX_ROUNDS
        )
        repaired = put(unrepaired, indices, repaired)
        texts = with_strings(repaired, concatenate(lines.with_values(strings_of(repaired))))
        for pattern, replacement in ((_DASHES, "-"), (_ELLIPSIS, "..."), (_ACUTE, "'")):
            texts = regex_replace(texts, pattern, replacement)
        return regex_replace(texts, self._patterns["space"], " ")

    def _repair(self, lines: Texts, is_markup: tf.Tensor) -> Texts:
        """Repairs lines, `[n]`, once; decodes references only where they are not markup."""
        lines = update_where(~is_markup, self._decode_entities, lines)
        lines = self._repair_mojibake(lines)
        lines = self._repair_characters(lines)
        lines = regex_replace(lines, r"\r\n?", "\n")
        lines = regex_replace(lines, self._patterns["escape"], "")
        return regex_replace(lines, r"[\x00-\x08\x0b\x0e-\x1f\x7f]", "")


def _split_lines(texts: tf.Tensor) -> tf.RaggedTensor:
    """Splits texts into lines with their line ends: string `[n]` to string `[n, None]`."""
    lines = tf.strings.split(texts, "\n")
    rows = row_indices(lines.row_splits)
    is_last = tf.concat([rows[1:] != rows[:-1], [True]], 0)
    return lines.with_values(lines.values + tf.where(is_last, "", "\n"))


def _is_markup(lines: tf.RaggedTensor) -> tf.Tensor:
    """Whether each line may be markup, whose author meant `&amp;` literally: bool `[lines]`.

    These are all lines of a text from the first line with a `<` on.
    """
    has_tag = tf.cast(tf.strings.regex_full_match(lines.values, "(?s).*<.*"), tf.int64)
    before = tf.gather(tf.cumsum(has_tag, exclusive=True), lines.row_starts())
    return tf.cumsum(has_tag) > tf.gather(before, row_indices(lines.row_splits))


def _is_plain(texts: tf.Tensor) -> tf.Tensor:
    """Returns whether each text needs no repair: string `[n]` to bool `[n]`."""
    return tf.strings.regex_full_match(texts, _PLAIN)

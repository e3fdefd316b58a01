"""ftfy's repairs of text in the graph, and the characters that text_standardize replaces.

Most lines are plain ASCII without character references and need no repair, so only the other lines
are processed. As in ftfy, a line is repaired again until a repair changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.graph_ops import concatenate, row_indices, row_splits
from gpt1_keras.tokenization.lookup import ABSENT, CodePointMap, PairTable, StringTable
from gpt1_keras.tokenization.offsets import (
    AlignedTexts,
    Texts,
    decode_with_ranges,
    is_ascii,
    loop_shapes,
    put,
    regex_replace,
    repeat,
    replace_parts,
    select,
    split_at_matches,
    strings_of,
    take,
    update_where,
    with_strings,
)

# ftfy has no such bound. A second round is seldom needed; each decodes one level of `&amp;amp;`, or
# undoes one misreading.
_MAX_ROUNDS = 8
_PLAIN = r"[ -%'-~\t\n]*"  # printable ASCII without `&`
_DASHES, _ELLIPSIS, _ACUTE = "[—–―]", "…", "´"

_REFERENCE = "&#?[0-9A-Za-z]{1,24};"
_REPLACEMENT = 0xFFFD  # what a number beyond Unicode refers to
_DIGITS = 7  # of the largest code point, in decimal

# RE2 cannot match single bytes, so the code point of the same number stands for each.
_MARK = "\u0100"  # not a byte
# Where the byte A0 became a space. Byte C3 and a space were `à` and a space, except before the few
# endings of words that the first pattern matches, which it keeps from the second.
_GRAVE = (
    ("(\u00c3) ( |quele|quela|quilo|s )", rf"\1{_MARK}\2"),
    ("\u00c3 ", "\u00c3\u00a0 "),
    (_MARK, " "),
)
_A, _B = "[\u0080-\u0084\u0086-\u009f\u00a1-\u00bf]", "[\u0080-\u00bf]"
_SPACE = (
    f"([\u00c2\u00c3\u00c5\u00ce\u00d0\u00d9]) |([\u00e2\u00e3]) ({_A})|([\u00e0-\u00e3]{_A}) "
    f"|(\u00f0) ({_B}{_B})|(\u00f0{_B}) ({_B})|(\u00f0{_B}{_B}) "
)
_NO_SPACE = "\\1\\2\\4\\5\\7\\9\u00a0\\3\\6\\8"
# Where a byte was lost, `�` replaced it, for which byte 1A stands, or `?` did.
_LOST, _LOST_OR = "[\x1a?]", "[\x1a\u0080-\u00bf]"
_LOSSY = "|".join(
    [
        "[\u00c2-\u00df]\x1a",
        "[\u00c2-\u00c3]\\?",
        f"\u00ed[\u00a0-\u00af]{_LOST}\u00ed[\u00b0-\u00bf][\x1a?\u0080-\u00bf]",
        f"\u00ed[\u00a0-\u00af][\x1a?\u0080-\u00bf]\u00ed[\u00b0-\u00bf]{_LOST}",
        f"[\u00e0-\u00ef]{_LOST}{_LOST_OR}",
        f"[\u00e0-\u00ef]{_LOST_OR}{_LOST}",
        f"[\u00f0-\u00f4]{_LOST}{_LOST_OR}{_LOST_OR}",
        f"[\u00f0-\u00f4]{_LOST_OR}{_LOST}{_LOST_OR}",
        f"[\u00f0-\u00f4]{_LOST_OR}{_LOST_OR}{_LOST}",
        "\x1a",
    ]
)
_REPLACEMENT_CHARACTER = "\u00ef\u00bf\u00bd"  # the bytes of `�`
# Matches whatever ftfy's own test for mojibake matches. That is slow, and `é` alone is common.
_SUSPICIOUS = r"(?s).*(?:[^\x00-\x7f]{2}|[\x{80}-\x{9f}ÂÃŒœ]).*"

# Hangul syllables compose by arithmetic (The Unicode Standard, section 3.12).
_SYLLABLE, _LEAD, _VOWEL, _TRAIL = 0xAC00, 0x1100, 0x1161, 0x11A7
_SYLLABLES, _LEADS, _VOWELS, _TRAILS = 11172, 19, 21, 28


class Cleaner:
    """Cleans texts, whose only white space is then spaces, tabs, newlines and form feeds.

    This class and the other three take the tables that `original.read_tables` returns.
    """

    def __init__(self, tables: dict[str, Any]) -> None:
        self._decode_entities = EntityDecoder(tables)
        self._repair_mojibake = MojibakeRepair(tables)
        self._repair_characters = CharacterRepair(tables)
        self._patterns = tables["patterns"]

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
            lambda lines: self._repair(lines, is_markup), take(unrepaired, indices), _MAX_ROUNDS
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
    """Returns whether each line may be markup, which means `&amp;` literally: bool `[lines]`.

    These are all lines of a text from its first line with a `<` on.
    """
    has_tag = tf.cast(tf.strings.regex_full_match(lines.values, "(?s).*<.*"), tf.int64)
    before = tf.gather(tf.cumsum(has_tag, exclusive=True), lines.row_starts())
    return tf.cumsum(has_tag) > tf.gather(before, row_indices(lines.row_splits))


def _is_plain(texts: tf.Tensor) -> tf.Tensor:
    """Returns whether each text needs no repair: string `[n]` to bool `[n]`."""
    return tf.strings.regex_full_match(texts, _PLAIN)


class EntityDecoder:
    """Decodes character references as ftfy's unescape_html does."""

    def __init__(self, tables: dict[str, Any]) -> None:
        entities = tables["entities"]
        self._entities = StringTable(list(entities), tf.constant(list(entities.values())))
        self._references = CodePointMap.from_mapping(tables["references"])

    def __call__(self, lines: Texts) -> Texts:
        """Decodes references in lines, `[n]`."""
        found = tf.strings.regex_full_match(strings_of(lines), f"(?s).*{_REFERENCE}.*")
        return update_where(found, self._decode, lines)

    def _decode(self, lines: Texts) -> Texts:
        """Decodes references in lines that all hold one."""
        parts = split_at_matches(lines, _REFERENCE)
        values = parts.values
        characters, is_entity = self._entities(values)
        values = tf.where(is_entity, characters, values)
        values = self._decode_numbers(values, "&#([0-9]+);", 10)
        values = self._decode_numbers(values, "&#[xX]([0-9A-Fa-f]+);", 16)
        return replace_parts(lines, parts, values)

    def _decode_numbers(self, parts: tf.Tensor, pattern: str, base: int) -> tf.Tensor:
        """Decodes the parts, string `[n]`, that are numeric references."""
        return update_where(
            tf.strings.regex_full_match(parts, pattern),
            lambda texts: self._characters_of(
                tf.strings.regex_replace(texts, pattern, r"\1"), base
            ),
            parts,
        )

    def _characters_of(self, numbers: tf.Tensor, base: int) -> tf.Tensor:
        """Returns the characters that numbers refer to: digits, string `[n]`, to string `[n]`."""
        numbers = tf.strings.regex_replace(numbers, "^0+", "")
        is_long = tf.strings.length(numbers) > _DIGITS
        numbers = tf.strings.substr("0" * _DIGITS + numbers, -_DIGITS, _DIGITS)
        bytes = tf.cast(tf.io.decode_raw(numbers, tf.uint8), tf.int32)  # (n, _DIGITS)
        digits = bytes % 16 + tf.where(bytes > ord("9"), 9, 0)
        codes = tf.reduce_sum(digits * [base**power for power in reversed(range(_DIGITS))], axis=1)
        codes = tf.where(is_long | (codes > 0x10FFFF), _REPLACEMENT, codes)
        codes = tf.RaggedTensor.from_uniform_row_length(codes, 1)
        return tf.strings.unicode_encode(self._references(codes), "UTF-8")


class MojibakeRepair:
    """Repairs lines that look like mojibake."""

    def __init__(self, tables: dict[str, Any]) -> None:
        self._patterns = tables["patterns"]
        encodings = tables["encodings"]
        left, right, byte = zip(
            *(
                (index, ord(character), byte)
                for index, characters in enumerate(encodings.values())
                for byte, character in enumerate(characters)
            )
        )
        self._byte = PairTable(np.array(left), np.array(right), byte)
        self._count = len(encodings)
        self._restores_spaces = tf.constant([name != "macroman" for name in encodings])
        self._is_sloppy = tf.constant([name.startswith("sloppy") for name in encodings])
        self._bytes = tf.constant([bytes([byte]) for byte in range(256)])

    def __call__(self, lines: Texts) -> Texts:
        """Repairs lines, `[n]`, of valid UTF-8."""
        return self._repeat_where_bad(self._repair, lines)

    def _repeat_where_bad(self, function: Callable[[Texts], Texts], texts: Texts) -> Texts:
        """Applies a function to texts that look like mojibake until it changes nothing."""

        def apply_where_bad(texts: Texts) -> Texts:
            is_bad = tf.strings.regex_full_match(strings_of(texts), self._patterns["bad"])
            return update_where(is_bad, function, texts)

        def apply(texts: Texts) -> Texts:
            is_suspicious = tf.strings.regex_full_match(strings_of(texts), _SUSPICIOUS)
            return update_where(is_suspicious, apply_where_bad, texts)

        return repeat(apply, texts, _MAX_ROUNDS)

    def _repair(self, lines: Texts) -> Texts:
        """Repairs each line once, as a whole or in parts."""
        decoded, is_decoded = self._decode(lines)
        return update_where(~is_decoded, self._repair_parts, decoded)

    def _repair_parts(self, lines: Texts) -> Texts:
        """Repairs the parts of lines in which mojibake is mixed with other text."""
        mojibake, before = self._patterns["mojibake"], self._patterns["before_mojibake"]
        parts = split_at_matches(lines, mojibake, before)
        repaired = update_where(
            tf.strings.regex_full_match(parts.values, mojibake),
            lambda texts: self._repeat_where_bad(lambda texts: self._decode(texts)[0], texts),
            with_strings(lines, parts.values),
        )
        return with_strings(repaired, concatenate(parts.with_values(strings_of(repaired))))

    def _decode(self, lines: Texts) -> tuple[Texts, tf.Tensor]:
        """Decodes the lines, `[n]`, that an encoding fits; also returns which, bool `[n]`."""

        def decode(
            encoding: tf.Tensor, decoded: Texts, is_decoded: tf.Tensor
        ) -> tuple[tf.Tensor, Texts, tf.Tensor]:
            texts, fits = self._decode_from(encoding, lines)
            decoded = select(fits & ~is_decoded, texts, decoded)
            return encoding + 1, decoded, is_decoded | fits

        is_decoded = tf.zeros_like(strings_of(lines), tf.bool)
        return tf.while_loop(
            lambda encoding, decoded, is_decoded: ~tf.reduce_all(is_decoded),
            decode,
            (0, lines, is_decoded),
            shape_invariants=(tf.TensorShape([]), loop_shapes(lines), is_decoded.shape),
            maximum_iterations=self._count,
        )[1:]

    def _decode_from(self, encoding: tf.Tensor, lines: Texts) -> tuple[Texts, tf.Tensor]:
        """Decodes lines as UTF-8 that was read in an encoding; also returns which lines fit it."""
        codes = tf.strings.unicode_decode(strings_of(lines), "UTF-8")
        bytes = self._byte(tf.fill(tf.shape(codes.values), encoding), codes.values)
        is_foreign = bytes == ABSENT
        foreign = tf.math.unsorted_segment_sum(
            tf.cast(is_foreign, tf.int32), row_indices(codes.row_splits), tf.size(strings_of(lines))
        )
        bytes = codes.with_values(tf.where(is_foreign, 0, bytes))
        encoded = with_strings(lines, tf.strings.unicode_encode(bytes, "UTF-8"))
        encoded = self._restore(encoded, encoding)
        bytes = tf.strings.unicode_decode(strings_of(encoded), "UTF-8")
        texts = tf.gather(self._bytes, bytes.values)
        texts = concatenate(bytes.with_values(texts))
        valid = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        fits = (foreign == 0) & (valid == texts)
        return _decoded(encoded, texts), fits

    def _restore(self, texts: Texts, encoding: tf.Tensor) -> Texts:
        """Restores bytes that were replaced, in texts, `[n]`, of one code point per byte."""
        restored = texts
        for pattern, replacement in (*_GRAVE, (_SPACE, _NO_SPACE)):
            restored = regex_replace(restored, pattern, replacement)
        texts = select(self._restores_spaces[encoding], restored, texts)
        restored = regex_replace(texts, _LOSSY, _REPLACEMENT_CHARACTER)
        return select(self._is_sloppy[encoding], restored, texts)


def _decoded(bytes: Texts, texts: tf.Tensor) -> Texts:
    """Gives strings, `[n]`, the ranges of their bytes, which have one code point per byte."""
    if not isinstance(bytes, AlignedTexts):
        return texts
    codes, starts, ends = decode_with_ranges(texts)
    strings = tf.strings.unicode_encode(codes, "UTF-8")
    return AlignedTexts(strings, tf.gather(bytes.starts, starts), tf.gather(bytes.ends, ends - 1))


class CharacterRepair:
    """Makes ftfy's repairs of single code points, then composes characters with their marks (NFC).

    The repairs put straight quotes in place of curly ones, letters in place of ligatures, and
    ordinary widths in place of full and half widths. A mark is composed only with the character
    just before it: marks are not reordered first.
    """

    def __init__(self, tables: dict[str, Any]) -> None:
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

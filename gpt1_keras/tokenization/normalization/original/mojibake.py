"""Mojibake: UTF-8 that was once read in another encoding, such as `Ã©` for `é`.

As ftfy does it: a line that looks like mojibake is put back into bytes by the first encoding in
which these bytes are UTF-8. Where no encoding fits the whole line, parts of it are.
"""

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.pair_table import ABSENT, PairTable
from gpt1_keras.tokenization.lookup.ragged import concatenate, row_numbers
from gpt1_keras.tokenization.normalization.original.resources import load_resources
from gpt1_keras.tokenization.normalization.original.selection import repeat, update_where

# RE2 cannot match single bytes, so they are carried as the characters of the same numbers.
_MARK = "\u0100"  # no byte

# Where a byte A0 was taken for a blank. Behind C3 it was the letter `à` and then a blank, but in
# some words, whose blanks the first of these patterns saves from the second.
_GRAVE = (
    ("(\u00c3) ( |quele|quela|quilo|s )", rf"\1{_MARK}\2"),
    ("\u00c3 ", "\u00c3\u00a0 "),
    (_MARK, " "),
)
_A, _B = "[\u0080-\u0084\u0086-\u009f\u00a1-\u00bf]", "[\u0080-\u00bf]"
_BLANK = (
    f"([\u00c2\u00c3\u00c5\u00ce\u00d0\u00d9]) |([\u00e2\u00e3]) ({_A})|([\u00e0-\u00e3]{_A}) "
    f"|(\u00f0) ({_B}{_B})|(\u00f0{_B}) ({_B})|(\u00f0{_B}{_B}) "
)
_NO_BLANK = "\\1\\2\\4\\5\\7\\9\u00a0\\3\\6\\8"

# Where a byte was lost for good, `�`, which is byte 1A, or for `?`.
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
_REPLACEMENT = "\u00ef\u00bf\u00bd"  # the bytes of `�`

# What is in all that ftfy takes for mojibake; its own test takes long, and `é` alone is common.
_SUSPICIOUS = r"(?s).*(?:[^\x00-\x7f]{2}|[\x{80}-\x{9f}ÂÃŒœ]).*"
_PART_MARK = "\x01"  # parts lines; one that was there is dropped later on, as a control character
_MAX_ROUNDS = 8  # ftfy has no bound; one for each time that the text was read wrongly, and one more


class MojibakeRepair:
    """Repairs lines that look like mojibake."""

    def __init__(self):
        tables = load_resources()
        self._patterns = tables["patterns"]
        encodings = tables["encodings"]
        left, right, byte = zip(
            *(
                (number, ord(character), byte)
                for number, characters in enumerate(encodings.values())
                for byte, character in enumerate(characters)
            )
        )
        self._byte = PairTable(np.array(left), np.array(right), byte)
        self._count = len(encodings)
        self._restores_blanks = tf.constant([name != "macroman" for name in encodings])
        self._is_sloppy = tf.constant([name.startswith("sloppy") for name in encodings])
        self._bytes = tf.constant([bytes([byte]) for byte in range(256)])

    def __call__(self, lines):
        """Repairs lines: string `[n]`, valid UTF-8, to string `[n]`."""
        return self._repeat_where_bad(self._repair, lines)

    def _repeat_where_bad(self, function, texts):
        def apply_where_bad(texts):
            is_bad = tf.strings.regex_full_match(texts, self._patterns["bad"])
            return update_where(is_bad, function, texts)

        def apply(texts):
            return update_where(
                tf.strings.regex_full_match(texts, _SUSPICIOUS), apply_where_bad, texts
            )

        return repeat(apply, texts, _MAX_ROUNDS)

    def _repair(self, lines):
        """Repairs lines once: the whole line, or else its parts."""
        decoded, is_decoded = self._decode(lines)
        return update_where(~is_decoded, self._repair_parts, decoded)

    def _repair_parts(self, lines):
        """Repairs lines on which mojibake stands beside text that is not."""
        mojibake, before = self._patterns["mojibake"], self._patterns["before_mojibake"]
        marked = rf"\1{_PART_MARK}\2{_PART_MARK}"
        parts = tf.strings.split(
            tf.strings.regex_replace(lines, f"({before})({mojibake})", marked), _PART_MARK
        )
        repaired = update_where(
            tf.strings.regex_full_match(parts.values, mojibake),
            lambda texts: self._repeat_where_bad(lambda texts: self._decode(texts)[0], texts),
            parts.values,
        )
        return concatenate(parts.with_values(repaired))

    def _decode(self, lines):
        """Decodes lines, string `[n]`, that an encoding fits.

        Returns:
            `(lines, is_decoded)`: string and bool `[n]`.
        """

        def decode(number, decoded, is_decoded):
            texts, fits = self._decode_from(number, lines)
            decoded = tf.where(fits & ~is_decoded, texts, decoded)
            return number + 1, decoded, is_decoded | fits

        return tf.while_loop(
            lambda number, decoded, is_decoded: ~tf.reduce_all(is_decoded),
            decode,
            (0, lines, tf.zeros_like(lines, tf.bool)),
            maximum_iterations=self._count,
        )[1:]

    def _decode_from(self, number, lines):
        """Reads lines as what an encoding made of UTF-8, and says whether they are that."""
        codes = tf.strings.unicode_decode(lines, "UTF-8")
        bytes = self._byte(tf.fill(tf.shape(codes.values), number), codes.values)
        is_foreign = bytes == ABSENT
        foreign = tf.math.unsorted_segment_sum(
            tf.cast(is_foreign, tf.int32), row_numbers(codes.row_splits), tf.size(lines)
        )
        bytes = codes.with_values(tf.where(is_foreign, 0, bytes))
        texts = self._restore(tf.strings.unicode_encode(bytes, "UTF-8"), number)
        bytes = tf.strings.unicode_decode(texts, "UTF-8")
        texts = tf.gather(self._bytes, bytes.values)
        texts = concatenate(bytes.with_values(texts))
        valid = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        return texts, (foreign == 0) & (valid == texts)

    def _restore(self, texts, number):
        """Restores bytes that have been replaced: string `[n]`, a character a byte."""
        restored = texts
        for pattern, replacement in (*_GRAVE, (_BLANK, _NO_BLANK)):
            restored = tf.strings.regex_replace(restored, pattern, replacement)
        texts = tf.where(self._restores_blanks[number], restored, texts)
        restored = tf.strings.regex_replace(texts, _LOSSY, _REPLACEMENT)
        return tf.where(self._is_sloppy[number], restored, texts)

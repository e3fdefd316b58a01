"""References to characters, such as `&eacute;`, `&#233;` and `&#xE9;`."""

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.ragged import concatenate
from gpt1_keras.tokenization.lookup.string_table import StringTable
from gpt1_keras.tokenization.normalization.original.characters import CodePointMap
from gpt1_keras.tokenization.normalization.original.resources import load_resources
from gpt1_keras.tokenization.normalization.original.selection import update_where

_REFERENCE = "&#?[0-9A-Za-z]{1,24};"
_MARK = "\x01"
_NOTHING = 0xFFFD  # what a number beyond Unicode refers to
_DIGITS = 7  # of a number; those beyond Unicode are told apart by them


class EntityDecoder:
    """Decodes references to characters, as ftfy's unescape_html."""

    def __init__(self):
        tables = load_resources()
        self._entities = StringTable(list(tables["entities"]))
        self._characters = tf.constant(list(tables["entities"].values()))
        self._references = CodePointMap(tables["references"])

    def __call__(self, lines):
        """Decodes references: string `[n]` to string `[n]`."""
        found = tf.strings.regex_full_match(lines, f"(?s).*{_REFERENCE}.*")
        return update_where(found, self._decode, lines)

    def _decode(self, lines):
        # Parted at marks, a reference is a piece of its own. A mark that was there is a control
        # character, and would be dropped later on.
        pieces = tf.strings.split(
            tf.strings.regex_replace(lines, _REFERENCE, rf"{_MARK}\0{_MARK}"), _MARK
        )
        values = pieces.values
        number = self._entities(values)
        values = tf.where(number >= 0, tf.gather(self._characters, tf.maximum(number, 0)), values)
        for pattern, base in (("&#([0-9]+);", 10), ("&#[xX]([0-9A-Fa-f]+);", 16)):
            values = update_where(
                tf.strings.regex_full_match(values, pattern),
                lambda texts, pattern=pattern, base=base: self._characters_of(
                    tf.strings.regex_replace(texts, pattern, r"\1"), base
                ),
                values,
            )
        return concatenate(pieces.with_values(values))

    def _characters_of(self, numbers, base):
        """The characters that numbers refer to: digits, string `[n]`, to string `[n]`."""
        numbers = tf.strings.regex_replace(numbers, "^0+", "")
        is_long = tf.strings.length(numbers) > _DIGITS
        numbers = tf.strings.substr("0" * _DIGITS + numbers, -_DIGITS, _DIGITS)
        bytes = tf.cast(tf.io.decode_raw(numbers, tf.uint8), tf.int32)  # (n, _DIGITS)
        digits = bytes % 16 + tf.where(bytes > ord("9"), 9, 0)
        codes = tf.reduce_sum(digits * [base**power for power in reversed(range(_DIGITS))], axis=1)
        codes = tf.where(is_long | (codes > 0x10FFFF), _NOTHING, codes)
        codes = tf.RaggedTensor.from_uniform_row_length(codes, 1)
        return tf.strings.unicode_encode(self._references(codes), "UTF-8")

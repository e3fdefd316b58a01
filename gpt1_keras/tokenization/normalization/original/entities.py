"""Decodes HTML character references, such as `&eacute;`, `&#233;` and `&#xE9;`."""

from __future__ import annotations

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.alignment.aligned_texts import (
    Texts,
    replace_parts,
    split_at_matches,
    strings_of,
)
from gpt1_keras.tokenization.control_flow import update_where
from gpt1_keras.tokenization.lookup.code_point_map import CodePointMap
from gpt1_keras.tokenization.lookup.string_table import StringTable
from gpt1_keras.tokenization.normalization.original.resources import load_resources

_REFERENCE = "&#?[0-9A-Za-z]{1,24};"
_REPLACEMENT = 0xFFFD  # what a number beyond Unicode refers to
_DIGITS = 7  # of the largest code point, in decimal


class EntityDecoder:
    """Decodes character references as ftfy's unescape_html does."""

    def __init__(self) -> None:
        tables = load_resources()
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

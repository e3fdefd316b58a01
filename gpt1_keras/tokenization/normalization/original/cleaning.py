"""ftfy's repairs of text, and the characters that text_standardize replaces.

Most lines are plain ASCII without character references and need no repair, so only the other lines
are processed. As in ftfy, a line is repaired again until a repair changes nothing.
"""

from __future__ import annotations

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.alignment.aligned_texts import (
    AlignedTexts,
    Texts,
    put,
    regex_replace,
    strings_of,
    take,
    with_strings,
)
from gpt1_keras.tokenization.control_flow import repeat, update_where
from gpt1_keras.tokenization.normalization.original.characters import CharacterRepair
from gpt1_keras.tokenization.normalization.original.entities import EntityDecoder
from gpt1_keras.tokenization.normalization.original.mojibake import MojibakeRepair
from gpt1_keras.tokenization.normalization.original.resources import load_resources
from gpt1_keras.tokenization.ragged import concatenate, row_indices

# ftfy has no such bound. A second round is seldom needed; each decodes one level of `&amp;amp;`.
MAX_ROUNDS = 8
_PLAIN = r"[ -%'-~\t\n]*"  # printable ASCII without `&`
_DASHES, _ELLIPSIS, _ACUTE = "[—–―]", "…", "´"


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

"""ftfy's repairs of text, and the characters that text_standardize replaces.

Plain ASCII without references to characters needs none, and most lines are that; so only the other
lines are looked at. As ftfy does, each line is repaired until nothing changes any more.
"""

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.ragged import concatenate, row_numbers
from gpt1_keras.tokenization.normalization.original.characters import CharacterRepair
from gpt1_keras.tokenization.normalization.original.entities import EntityDecoder
from gpt1_keras.tokenization.normalization.original.mojibake import MojibakeRepair
from gpt1_keras.tokenization.normalization.original.resources import load_resources
from gpt1_keras.tokenization.normalization.original.selection import repeat, update_where

# ftfy has no such bound. Two rounds are seldom needed; each of `&amp;amp;...` peels off one layer.
MAX_ROUNDS = 8
_PLAIN = r"[ -%'-~\t\n]*"  # printable ASCII but `&`
_DASHES, _ELLIPSIS, _ACUTE = "[—–―]", "…", "´"


class Cleaner:
    """Cleans texts; their only white space is then blanks, tabs, newlines and form feeds."""

    def __init__(self):
        self._decode_entities = EntityDecoder()
        self._repair_mojibake = MojibakeRepair()
        self._repair_characters = CharacterRepair()
        self._patterns = load_resources()["patterns"]

    def __call__(self, texts):
        """Cleans texts: string `[n]`, UTF-8 with or without errors, to string `[n]`."""
        return update_where(~_is_plain(texts), self._clean, texts)

    def _clean(self, texts):
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        lines = _split_lines(texts)
        places = tf.where(~_is_plain(lines.values))
        is_markup = tf.gather_nd(_is_markup(lines), places)
        repaired = repeat(
            lambda lines: self._repair(lines, is_markup),
            tf.gather_nd(lines.values, places),
            MAX_ROUNDS,
        )
        repaired = tf.tensor_scatter_nd_update(lines.values, places, repaired)
        texts = concatenate(lines.with_values(repaired))
        for pattern, replacement in ((_DASHES, "-"), (_ELLIPSIS, "..."), (_ACUTE, "'")):
            texts = tf.strings.regex_replace(texts, pattern, replacement)
        return tf.strings.regex_replace(texts, self._patterns["space"], " ")

    def _repair(self, lines, is_markup):
        """Repairs lines once, string `[n]`; references only where they are no markup."""
        lines = update_where(~is_markup, self._decode_entities, lines)
        lines = self._repair_mojibake(lines)
        lines = self._repair_characters(lines)
        lines = tf.strings.regex_replace(lines, r"\r\n?", "\n")
        lines = tf.strings.regex_replace(lines, self._patterns["escape"], "")
        return tf.strings.regex_replace(lines, r"[\x00-\x08\x0b\x0e-\x1f\x7f]", "")


def _split_lines(texts):
    """The lines of texts, with their ends: string `[n]` to ragged string `[n, None]`."""
    lines = tf.strings.split(texts, "\n")
    rows = row_numbers(lines.row_splits)
    is_last = tf.concat([rows[1:] != rows[:-1], [True]], 0)
    return lines.with_values(lines.values + tf.where(is_last, "", "\n"))


def _is_markup(lines):
    """Whether a line may be markup, whose author meant `&amp;` as it stands: bool `[lines]`.

    So may all of a text from its first line with a `<` on.
    """
    has_tag = tf.cast(tf.strings.regex_full_match(lines.values, "(?s).*<.*"), tf.int64)
    before = tf.gather(tf.cumsum(has_tag, exclusive=True), lines.row_starts())
    return tf.cumsum(has_tag) > tf.gather(before, row_numbers(lines.row_splits))


def _is_plain(texts):
    return tf.strings.regex_full_match(texts, _PLAIN)

"""The `original` normalization: text to words as GPT-1 was trained on them."""

from __future__ import annotations

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.aligned_texts import AlignedTexts, align
from gpt1_keras.tokenization.lookup.ragged import row_indices, split_at_white_space
from gpt1_keras.tokenization.lookup.selection import is_ascii, update_where
from gpt1_keras.tokenization.normalization.base import Normalizer
from gpt1_keras.tokenization.normalization.original.cleaning import Cleaner
from gpt1_keras.tokenization.normalization.original.resources import load_resources
from gpt1_keras.tokenization.normalization.original.splitting import Splitter

_WHITE_SPACE = "\t\n\v\f\r "
_DOTTED_I = "İ"  # the only letter that is two in lower case
_LINE_END = "\x01"  # replaces the word while spaces separate words; no cleaned text holds it


class OriginalNormalizer(Normalizer):
    """Splits texts into words: ftfy, text_standardize, spaCy 2.0, lower case.

    These are the steps of text_utils.py in openai/finetune-transformer-lm.
    """

    name = "original"
    line_end = "\n"

    def __init__(self) -> None:
        self._clean = Cleaner()
        self._split_chunks = Splitter()
        self._punctuation = load_resources()["patterns"]["punctuation"]

    def split(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Splits texts at white space into chunks; see `Normalizer`. Invalid bytes are U+FFFD."""
        return self._split_cleaned(self._clean(texts))

    def split_with_ranges(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        cleaned = self._clean(align(texts))
        return *self._split_cleaned(cleaned.strings), *_letter_ranges(cleaned)

    def _split_cleaned(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        texts = tf.strings.strip(texts)
        texts = tf.strings.regex_replace(texts, r"\s*\n\s*", f" {_LINE_END} ")
        texts = tf.strings.regex_replace(texts, self._punctuation, r" \0 ")
        chunks = split_at_white_space(texts)
        distinct, indices = tf.unique(chunks.values)
        words = split_at_white_space(_lower(self._split_chunks(distinct)))
        words = words.with_values(tf.where(words.values == _LINE_END, self.line_end, words.values))
        return words, chunks.with_values(indices)


def _letter_ranges(cleaned: AlignedTexts) -> tuple[tf.Tensor, tf.Tensor]:
    """Where the letters of cleaned texts' words came from: int64 `[letters]` twice."""
    codes = tf.strings.unicode_decode(cleaned.strings, "UTF-8")
    sources = tf.where(_is_letter(codes))[:, 0]
    letters = 1 + tf.cast(tf.gather(codes.values, sources) == ord(_DOTTED_I), tf.int64)
    sources = tf.gather(sources, row_indices(tf.concat([[0], tf.cumsum(letters)], 0)))
    return tf.gather(cleaned.starts, sources), tf.gather(cleaned.ends, sources)


def _is_letter(codes: tf.RaggedTensor) -> tf.Tensor:
    """Which code points of cleaned texts, int32 `[n, None]`, become letters: bool `[codes]`.

    They are those beside white space, and of the line ends between two words the first.
    """
    is_black = tf.reduce_all(codes.values[:, None] != [*map(ord, _WHITE_SPACE)], axis=1)
    black = tf.concat([[0], tf.cumsum(tf.cast(is_black, tf.int64))], 0)
    before = black[:-1]
    row = row_indices(codes.row_splits)
    is_between = (before > tf.gather(tf.gather(black, codes.row_starts()), row)) & (
        before < tf.gather(tf.gather(black, codes.row_limits()), row)
    )
    line_end = tf.where(is_between & (codes.values == ord("\n")))
    word = tf.gather_nd(before, line_end)
    is_first = tf.concat([[True], word[1:] != word[:-1]], 0)[: tf.size(word)]
    return tf.tensor_scatter_nd_update(is_black, line_end, is_first)


def _lower(texts: tf.Tensor) -> tf.Tensor:
    """Lower-cases texts, string `[n]`, as Python does, whatever the process's locale."""
    texts = tf.strings.lower(texts)  # of ASCII alone
    return update_where(~is_ascii(texts), _lower_letters, texts)


def _lower_letters(texts: tf.Tensor) -> tf.Tensor:
    """Lower-cases texts beyond ASCII."""
    # First the letters that Turkish, Azerbaijani or Lithuanian lower-case differently.
    for upper, lower in (("İ", "i̇"), ("Į", "į"), ("Ì", "ì"), ("Í", "í"), ("Ĩ", "ĩ")):
        texts = tf.strings.regex_replace(texts, upper, lower)
    return tf.strings.lower(texts, "utf-8")

"""The `original` normalization: text to the words that GPT-1 was trained on."""

from __future__ import annotations

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.aligned_texts import AlignedTexts, align, is_ascii
from gpt1_keras.tokenization.control_flow import update_where
from gpt1_keras.tokenization.normalization.normalizer import Normalizer
from gpt1_keras.tokenization.normalization.original.cleaning import Cleaner
from gpt1_keras.tokenization.normalization.original.resources import load_resources
from gpt1_keras.tokenization.normalization.original.splitting import Splitter
from gpt1_keras.tokenization.padding import row_indices, row_splits, split_at_white_space

_WHITE_SPACE = "\t\n\v\f\r "
_DOTTED_I = "İ"  # the only character whose lower case is two characters
_LINE_END = "\x01"  # stands for "\n" while white space separates words; no cleaned text holds it


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
        """Splits texts into chunks at white space; see `Normalizer`. Invalid bytes are U+FFFD."""
        return self._split_cleaned(self._clean(texts))

    def split_with_ranges(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        cleaned = self._clean(align(texts))
        return *self._split_cleaned(cleaned.strings), *_character_ranges(cleaned)

    def _split_cleaned(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        texts = tf.strings.strip(texts)
        texts = tf.strings.regex_replace(texts, r"\s*\n\s*", f" {_LINE_END} ")
        texts = tf.strings.regex_replace(texts, self._punctuation, r" \0 ")
        chunks = split_at_white_space(texts)
        distinct, indices = tf.unique(chunks.values)
        words = split_at_white_space(_lower(self._split_chunks(distinct)))
        words = words.with_values(tf.where(words.values == _LINE_END, self.line_end, words.values))
        return words, chunks.with_values(indices)


def _character_ranges(cleaned: AlignedTexts) -> tuple[tf.Tensor, tf.Tensor]:
    """The starts and ends of the characters of cleaned texts' words: int64 `[characters]` twice."""
    codes = tf.strings.unicode_decode(cleaned.strings, "UTF-8")
    sources = tf.where(_is_in_a_word(codes))[:, 0]
    counts = 1 + tf.cast(tf.gather(codes.values, sources) == ord(_DOTTED_I), tf.int64)
    sources = tf.gather(sources, row_indices(row_splits(counts)))
    return tf.gather(cleaned.starts, sources), tf.gather(cleaned.ends, sources)


def _is_in_a_word(codes: tf.RaggedTensor) -> tf.Tensor:
    """Returns which code points of cleaned texts, int32 `[n, None]`, are in a word: bool `[codes]`.

    They are all that are not white space, and the first line end between two words.
    """
    is_visible = tf.reduce_all(codes.values[:, None] != [*map(ord, _WHITE_SPACE)], axis=1)
    visible = row_splits(tf.cast(is_visible, tf.int64))
    before = visible[:-1]
    row = row_indices(codes.row_splits)
    is_between = (before > tf.gather(tf.gather(visible, codes.row_starts()), row)) & (
        before < tf.gather(tf.gather(visible, codes.row_limits()), row)
    )
    line_end = tf.where(is_between & (codes.values == ord("\n")))
    gap = tf.gather_nd(before, line_end)
    is_first = tf.concat([[True], gap[1:] != gap[:-1]], 0)[: tf.size(gap)]
    return tf.tensor_scatter_nd_update(is_visible, line_end, is_first)


def _lower(texts: tf.Tensor) -> tf.Tensor:
    """Lower-cases texts, string `[n]`, as Python does, in every locale of the process."""
    texts = tf.strings.lower(texts)  # of ASCII alone
    return update_where(~is_ascii(texts), _lower_unicode, texts)


def _lower_unicode(texts: tf.Tensor) -> tf.Tensor:
    """Lower-cases texts that are not all ASCII."""
    # First the letters that Turkish, Azerbaijani or Lithuanian lower-case differently.
    for upper, lower in (("İ", "i̇"), ("Į", "į"), ("Ì", "ì"), ("Í", "í"), ("Ĩ", "ĩ")):
        texts = tf.strings.regex_replace(texts, upper, lower)
    return tf.strings.lower(texts, "utf-8")

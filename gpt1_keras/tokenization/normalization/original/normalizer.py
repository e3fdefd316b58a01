"""The `original` normalization: text to words as GPT-1 was trained on them."""

from __future__ import annotations

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.ragged import split_at_white_space
from gpt1_keras.tokenization.lookup.selection import is_ascii, update_where
from gpt1_keras.tokenization.normalization.base import Normalizer
from gpt1_keras.tokenization.normalization.original.cleaning import Cleaner
from gpt1_keras.tokenization.normalization.original.resources import load_resources
from gpt1_keras.tokenization.normalization.original.splitting import Splitter

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
        texts = tf.strings.strip(self._clean(texts))
        texts = tf.strings.regex_replace(texts, r"\s*\n\s*", f" {_LINE_END} ")
        texts = tf.strings.regex_replace(texts, self._punctuation, r" \0 ")
        chunks = split_at_white_space(texts)
        distinct, indices = tf.unique(chunks.values)
        words = split_at_white_space(_lower(self._split_chunks(distinct)))
        words = words.with_values(tf.where(words.values == _LINE_END, self.line_end, words.values))
        return chunks.with_values(indices), words


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

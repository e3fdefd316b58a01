"""The original normalisation: text to words as GPT-1 was trained on them."""

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.normalization.original.cleaning import Cleaner
from gpt1_keras.tokenization.normalization.original.resources import load_resources
from gpt1_keras.tokenization.normalization.original.selection import is_ascii, update_where
from gpt1_keras.tokenization.normalization.original.splitting import Splitter

_LINE_END = "\x01"  # stands for the word where blanks part words; no cleaned text holds it


class OriginalNormalizer:
    """Splits texts into words: ftfy, text_standardize, spaCy 2.0, lower case.

    As text_utils.py of openai/finetune-transformer-lm has it.
    """

    name = "original"
    line_end = "\n"  # the word for a line's end

    def __init__(self):
        self._clean = Cleaner()
        self._split_pieces = Splitter()
        self._punctuation = load_resources()["patterns"]["punctuation"]

    def split(self, texts):
        """Splits texts at white space, and what is between into words.

        Args:
            texts: string `[batch]`, UTF-8. Invalid bytes become U+FFFD.

        Returns:
            `(chunks, words)`: `tf.RaggedTensor`, int32 `[batch, None]`, the numbers of each text's
            chunks, and string `[chunks, None]`, the words of each chunk.
        """
        texts = tf.strings.strip(self._clean(texts))
        texts = tf.strings.regex_replace(texts, r"\s*\n\s*", f" {_LINE_END} ")
        chunks = tf.strings.split(texts)
        # Texts repeat their chunks, so each distinct chunk is split once.
        distinct, which = tf.unique(chunks.values)
        pieces = tf.strings.split(tf.strings.regex_replace(distinct, self._punctuation, r" \0 "))
        words = tf.strings.split(_lower(self._split_pieces(pieces.values)))
        words = words.with_values(tf.where(words.values == _LINE_END, self.line_end, words.values))
        return chunks.with_values(which), pieces.with_values(words).merge_dims(1, 2)


def _lower(texts):
    """Lower case as Python's, whatever the process's locale is."""
    texts = tf.strings.lower(texts)  # of ASCII alone
    return update_where(~is_ascii(texts), _lower_letters, texts)


def _lower_letters(texts):
    # What is lower-cased otherwise in Turkish, Azerbaijani or Lithuanian goes first.
    for upper, lower in (("İ", "i̇"), ("Į", "į"), ("Ì", "ì"), ("Í", "í"), ("Ĩ", "ĩ")):
        texts = tf.strings.regex_replace(texts, upper, lower)
    return tf.strings.lower(texts, "utf-8")

"""The `bert` normalization: text to words, each code point normalized by itself.

Its words are those of Hugging Face's BertNormalizer(lowercase=True) and BertPreTokenizer: control
characters are dropped, white space separates words, punctuation and CJK characters stand alone,
accents are removed and letters lower-cased. What becomes of a code point does not depend on its
neighbours, so a table holds it. There is one exception: about 200 rare combining marks are kept,
such as Javanese virama or the newest ones of Unicode. Hugging Face may swap two adjacent marks of
them; here they stay as typed.
"""

from __future__ import annotations

import functools
import pathlib
import unicodedata
from typing import ClassVar, NamedTuple

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.graph_ops import rows_of_one, split_at_white_space
from gpt1_keras.tokenization.lookup import CodePointMap
from gpt1_keras.tokenization.offsets import decode_with_ranges, update_where

TABLE_FILE = pathlib.Path(__file__).with_name("bert_table.npz")
HANGUL = range(0xAC00, 0xD7A4)  # syllables, which every version of Unicode decomposes alike
_PLAIN = r"[ -~\t\n\r]*"  # printable ASCII, of which only capitals change


class BertTable(NamedTuple):
    """What the normalization makes of every code point.

    Attributes:
        entries, replacements: as `CodePointMap` takes them; a space for what separates words.
        isolated: int32 `[ranges, 2]`, the first and last code points of the ranges of those that
            are words by themselves.
    """

    entries: np.ndarray
    replacements: list[str]
    isolated: np.ndarray


@functools.cache
def read_bert_table() -> BertTable:
    """Reads bert_table.npz (of tests/helpers/make_bert_table.py), and adds the Hangul syllables."""
    with np.load(TABLE_FILE, allow_pickle=False) as arrays:
        entries = arrays["pages"][arrays["page_of"]].reshape(-1)
        replacements = arrays["replacements"].tolist()
        isolated = arrays["isolated"]
    entries[HANGUL] = len(replacements) + np.arange(len(HANGUL))
    replacements += [unicodedata.normalize("NFD", chr(code)) for code in HANGUL]
    return BertTable(entries, replacements, isolated)


class BertNormalizer:
    """Splits texts into words as Hugging Face's tokenizer for GPT-1 does."""

    name: ClassVar[str] = "bert"
    line_end: ClassVar[str | None] = None

    def __init__(self) -> None:
        table = read_bert_table()
        self._replace = CodePointMap(table.entries, table.replacements)
        ranges = (rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in table.isolated)
        self._isolated = f"[{''.join(ranges)}]"

    def split(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Splits texts into chunks of one word each; see `Normalizer`. Drops invalid bytes."""
        is_plain = tf.strings.regex_full_match(texts, _PLAIN)
        texts = update_where(~is_plain, self._normalize, tf.strings.lower(texts))
        words = split_at_white_space(tf.strings.regex_replace(texts, self._isolated, r" \0 "))
        distinct, indices = tf.unique(words.values)
        return rows_of_one(distinct), words.with_values(indices)

    def split_with_ranges(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        codes, starts, ends = decode_with_ranges(texts)
        normalized, sources = self._replace.with_sources(codes)
        sources = tf.boolean_mask(sources, normalized.values != ord(" "))
        return *self.split(texts), tf.gather(starts, sources), tf.gather(ends, sources)

    def _normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Replaces every code point of texts: string `[n]` to string `[n]`."""
        codes = self._replace(tf.strings.unicode_decode(texts, "UTF-8", errors="replace"))
        return tf.strings.unicode_encode(codes, "UTF-8")

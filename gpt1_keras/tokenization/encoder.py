"""Texts to token ids: normalization, base symbols and merges, in core TensorFlow ops."""

from __future__ import annotations

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.aligned_texts import byte_splits
from gpt1_keras.tokenization.control_flow import call_if
from gpt1_keras.tokenization.lookup import CODE_POINTS, CodePointTable
from gpt1_keras.tokenization.merges import Merger
from gpt1_keras.tokenization.normalization import find_normalizer
from gpt1_keras.tokenization.padding import (
    from_row_indices,
    gather_rows,
    join_rows,
    put_rows,
    row_indices,
    row_splits,
    rows_of_one,
)
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN, Vocabulary
from gpt1_keras.tokenization.word_table import WordTable

# How many words of more than one token are looked up. Merging many at once takes less time.
_MOST_LOOKED_UP = 16


class Encoder:
    """Turns texts into token ids, by a vocabulary and the normalization of a name."""

    def __init__(self, vocabulary: Vocabulary, normalization: str) -> None:
        self._normalizer = find_normalizer(normalization)()
        self._merge = Merger(vocabulary)
        unknown = vocabulary.token_to_id[UNKNOWN]
        inner, final = (np.full(CODE_POINTS, unknown, np.int32) for _ in range(2))
        for token, id in vocabulary.token_to_id.items():
            if len(token) == 1:
                inner[ord(token)] = id
            elif len(token) == 1 + len(END_OF_WORD) and token.endswith(END_OF_WORD):
                final[ord(token[0])] = id
        self._inner = CodePointTable(inner)
        self._final = CodePointTable(final)
        # Most words of a text are one token, and most others are two; these need no merging.
        self._table = WordTable(vocabulary, self._merge)
        lengths = [len(token.removesuffix(END_OF_WORD)) for token in vocabulary.tokens]
        lengths[unknown] = 1
        self._lengths = tf.constant(lengths, tf.int64)  # in characters

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes texts, string `[batch]` in UTF-8, to int32 `[batch, None]`."""
        return self._encode(*self._normalizer.split(texts))

    def with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Encodes texts, string `[batch]`, and finds the range of bytes that each token came from.

        Returns `(ids, starts, ends)`: int32 `[batch, None]`; and int64 `[ids]` twice, each token's
        range within its text.
        """
        words, chunks, starts, ends = self._normalizer.split_with_ranges(texts)
        ids = self._encode(words, chunks)
        # The tokens together have the characters of all words, in the same order.
        splits = row_splits(tf.gather(self._lengths, ids.values))
        tf.debugging.assert_equal(
            splits[-1], tf.size(starts, tf.int64), "Characters of tokens, and of texts:"
        )
        text = tf.gather(byte_splits(texts), row_indices(ids.row_splits))
        return (
            ids,
            tf.gather(starts, splits[:-1]) - text,
            tf.gather(ends, splits[1:] - 1) - text,
        )

    def _encode(self, words: tf.RaggedTensor, chunks: tf.RaggedTensor) -> tf.RaggedTensor:
        """Encodes texts that the normalization has split, to int32 `[batch, None]`."""
        ids, is_one = self._table.find_one(words.values)
        tokens, are_complete = tf.cond(
            tf.reduce_all(is_one),
            lambda: (rows_of_one(ids), True),
            lambda: self._find_two(words.values, ids, is_one),
        )
        tokens = call_if(
            ~are_complete, lambda: self._merge_others(words.values, tokens), lambda: tokens
        )
        splits = tf.gather(tokens.row_splits, words.row_splits)
        tokens = tf.RaggedTensor.from_row_splits(tokens.values, splits, validate=False)
        return join_rows(tokens, chunks)

    def _find_two(
        self, words: tf.Tensor, ids: tf.Tensor, is_one: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Looks up the words of two tokens; `ids`, int32 `[words]`, are those of the words of one.

        Returns `(tokens, are_complete)`: int32 `[words, None]`, empty for words that were not
        found; and bool, whether all were found.
        """
        others = tf.where(~is_one)
        some = others[:_MOST_LOOKED_UP]
        found, pairs = self._table.find_two(tf.gather_nd(words, some))
        # An id below 0 is none. (A constant in tf.where would be broadcast, which is slow.)
        ids = tf.where(is_one, ids, tf.bitwise.invert(ids))
        ids = tf.pad(tf.expand_dims(ids, 1), [[0, 0], [0, 1]], constant_values=-1)
        ids = tf.tensor_scatter_nd_update(ids, tf.gather(some, found), pairs)
        in_use = tf.where(ids >= 0)
        word, _ = tf.unstack(in_use, axis=1)
        tokens = from_row_indices(tf.gather_nd(ids, in_use), word, tf.size(is_one, tf.int64))
        return tokens, tf.size(found) == tf.size(others)

    def _merge_others(self, words: tf.Tensor, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        """Merges the words, string `[words]`, that have no tokens, int32 `[words, None]`, yet."""
        others = tf.where(tokens.row_lengths() == 0)
        distinct, indices = tf.unique(tf.gather_nd(words, others))
        return put_rows(tokens, others, gather_rows(self._merge_words(distinct), indices))

    def _merge_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Merges words from their characters: string `[words]` to int32 `[words, None]`."""
        words = tf.strings.unicode_decode(words, "UTF-8")
        codes, rows = words.values, tf.cast(row_indices(words.row_splits), tf.int32)
        is_final = tf.concat([rows[1:] != rows[:-1], [True]], 0)[: tf.size(rows)]
        symbols = tf.where(is_final, self._final(codes), self._inner(codes))
        symbols, rows = self._merge(symbols, rows)
        return from_row_indices(symbols, rows, tf.cast(words.nrows(), tf.int32))

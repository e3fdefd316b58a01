"""Texts to token ids: normalization, base symbols and merges, in core TensorFlow ops."""

from __future__ import annotations

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.aligned_texts import byte_splits
from gpt1_keras.tokenization.lookup.code_point_table import CODE_POINTS, CodePointTable
from gpt1_keras.tokenization.lookup.ragged import from_row_indices, join_rows, row_indices
from gpt1_keras.tokenization.lookup.selection import call_if
from gpt1_keras.tokenization.lookup.string_table import StringTable
from gpt1_keras.tokenization.merges import Merger
from gpt1_keras.tokenization.normalization import find_normalizer
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN, Vocabulary


class Encoder:
    """Turns texts into token ids.

    Args:
        vocabulary: tokens and merges.
        normalization: name of the normalization, `"bert"` or `"original"`.
    """

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
        self._inner = CodePointTable(*CodePointTable.compress(inner))
        self._final = CodePointTable(*CodePointTable.compress(final))
        # Most words of a text are tokens as a whole, and need no merging.
        words = [token for token in vocabulary.tokens if token.endswith(END_OF_WORD)]
        words = [word.removesuffix(END_OF_WORD) for word in words if word != END_OF_WORD]
        ids = self._merge_words(tf.constant(words, tf.string)).to_list()
        whole = {word: ids[0] for word, ids in zip(words, ids) if len(ids) == 1}
        self._whole_words = StringTable(list(whole), tf.constant(list(whole.values()), tf.int32))
        letters = [len(token.removesuffix(END_OF_WORD)) for token in vocabulary.tokens]
        letters[unknown] = 1
        self._letters = tf.constant(letters, tf.int64)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes texts.

        Args:
            texts: string `[batch]`, UTF-8. The normalization decides what invalid bytes become.

        Returns:
            int32 `[batch, None]`.
        """
        chunks, words = self._normalizer.split(texts)
        ids, is_whole = self._whole_words(words.values)
        return call_if(
            ~tf.reduce_all(is_whole),
            lambda: self._join_merged(chunks, words, ids, is_whole),
            lambda: join_rows(words.with_values(ids), chunks),
        )

    def with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Encodes texts, and finds the range of bytes that each token came from.

        Args:
            texts: as for the call.

        Returns:
            `(ids, starts, ends)`: as of the call; and int64 `[ids]`, the range within its text.
        """
        ids = self(texts)
        starts, ends = self._normalizer.letter_ranges(texts)
        # The tokens' letters are all letters of all words in turn.
        letters = tf.gather(self._letters, ids.values)
        splits = tf.concat([[0], tf.cumsum(letters)], 0)
        tf.debugging.assert_equal(
            splits[-1], tf.size(starts, tf.int64), "Letters of tokens, and of texts:"
        )
        text = tf.gather(byte_splits(texts), row_indices(ids.row_splits))
        return (
            ids,
            tf.gather(starts, splits[:-1]) - text,
            tf.gather(ends, splits[1:] - 1) - text,
        )

    def _join_merged(
        self, chunks: tf.RaggedTensor, words: tf.RaggedTensor, ids: tf.Tensor, is_whole: tf.Tensor
    ) -> tf.RaggedTensor:
        """Encodes texts some of whose words are not tokens as a whole.

        Args:
            chunks, words: as the normalization returned them.
            ids, is_whole: int32 and bool, the token of each of the words, and whether it is one.

        Returns:
            int32 `[batch, None]`.
        """
        missing = tf.where(~is_whole)
        distinct, indices = tf.unique(tf.gather_nd(words.values, missing))
        merged = self._merge_words(distinct)
        # A row of one id for each word, and then those of the merged words.
        size = tf.size(ids, tf.int64)
        rows = tf.RaggedTensor.from_row_splits(
            tf.concat([ids, merged.values], 0),
            tf.concat([tf.range(size), size + merged.row_splits], 0),
            validate=False,
        )
        row = tf.range(tf.size(ids))
        row = tf.tensor_scatter_nd_update(row, missing, tf.size(ids) + indices)
        return join_rows(rows, join_rows(words.with_values(row), chunks))

    def _merge_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Encodes words letter by letter, by merging: string `[words]` to int32 `[words, None]`."""
        words = tf.strings.unicode_decode(words, "UTF-8")
        letters, rows = words.values, tf.cast(row_indices(words.row_splits), tf.int32)
        is_final = tf.concat([rows[1:] != rows[:-1], [True]], 0)[: tf.size(rows)]
        symbols = tf.where(is_final, self._final(letters), self._inner(letters))
        symbols, rows = self._merge(symbols, rows)
        return from_row_indices(symbols, rows, tf.cast(words.nrows(), tf.int32))

"""Texts to token ids: normalization, base symbols and merges, in core TensorFlow ops."""

from __future__ import annotations

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.code_point_table import CODE_POINTS, CodePointTable
from gpt1_keras.tokenization.lookup.ragged import join_rows, row_indices
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
        self._whole_words = StringTable(list(whole))
        self._whole_ids = tf.constant([*whole.values(), unknown])

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Encodes texts.

        Args:
            texts: string `[batch]`, UTF-8. The normalization decides what invalid bytes become.

        Returns:
            int32 `[batch, None]`.
        """
        chunks, words = self._normalizer.split(texts)
        # Texts repeat their words, so each distinct word is encoded once.
        distinct, indices = tf.unique(words.values)
        ids = join_rows(self._encode_words(distinct), words.with_values(indices))
        return join_rows(ids, chunks)

    def _encode_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Encodes words, string `[words]`, to int32 `[words, None]`."""
        index = self._whole_words(words)
        is_whole = index >= 0
        ids = tf.gather(self._whole_ids, tf.maximum(index, 0))

        def merge() -> tuple[tf.Tensor, tf.Tensor]:
            merged = self._merge_words(tf.boolean_mask(words, ~is_whole))
            # The rows of `ids`, each of one id, followed by those of `merged`.
            rows = tf.concat([tf.RaggedTensor.from_uniform_row_length(ids, 1), merged], 0)
            merged_row = tf.size(ids) - 1 + tf.cumsum(tf.cast(~is_whole, tf.int32))
            row = tf.where(is_whole, tf.range(tf.size(ids)), merged_row)
            found = join_rows(rows, tf.RaggedTensor.from_uniform_row_length(row, 1))
            return found.values, found.row_splits

        values, splits = tf.cond(
            tf.reduce_all(is_whole),
            lambda: (ids, tf.range(tf.size(ids, tf.int64) + 1)),
            merge,
        )
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)

    def _merge_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Encodes words letter by letter, by merging: string `[words]` to int32 `[words, None]`."""
        words = tf.strings.unicode_decode(words, "UTF-8")
        letters, rows = words.values, tf.cast(row_indices(words.row_splits), tf.int32)
        is_final = tf.concat([rows[1:] != rows[:-1], [True]], 0)[: tf.size(rows)]
        symbols = tf.where(is_final, self._final(letters), self._inner(letters))
        symbols, rows = self._merge(symbols, rows)
        return tf.RaggedTensor.from_value_rowids(
            symbols, tf.cast(rows, tf.int64), nrows=words.nrows(), validate=False
        )

"""Texts to token ids: normalization, base symbols and merges, in core TensorFlow ops."""

from __future__ import annotations

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.graph_ops import (
    call_if,
    from_row_indices,
    gather_rows,
    join_rows,
    put_rows,
    row_indices,
    row_splits,
    rows_of_one,
)
from gpt1_keras.tokenization.lookup import CODE_POINTS, CodePointTable, StringTable
from gpt1_keras.tokenization.merges import CrossingMerges, Merger
from gpt1_keras.tokenization.normalization import find_normalizer
from gpt1_keras.tokenization.offsets import byte_splits
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN, Vocabulary

# How many words of more than one token are looked up. Merging many at once takes less time.
_MOST_LOOKED_UP = 16

_INNER = " "  # before a token that does not end words; no word holds a space
_MOST_TOKENS = 2**20  # up to which `CrossingMerges` can number pairs in 64 bits
_REST = 2**31  # bytes, more than a word has


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


class WordTable:
    """Finds the tokens of words that are one token, or two, without merging.

    A word is two tokens if merging makes each of them from its own characters, and joins no symbols
    across the cut between them.
    """

    def __init__(self, vocabulary: Vocabulary, merge: Merger) -> None:
        tokens = _merged_alone(vocabulary, merge)
        final = [token for token in tokens if token.endswith(END_OF_WORD) and " " not in token]
        inner = [token for token in tokens if not token.endswith(END_OF_WORD)]
        if not (
            vocabulary.merges_are_ordered
            and vocabulary.merges_are_unique
            and len(vocabulary.tokens) <= _MOST_TOKENS
        ):
            inner = []  # ranks do not say how tokens are made, so no word is found as two tokens
        final_ids, inner_ids = (
            np.array([vocabulary.token_to_id[token] for token in part], np.int32)
            for part in (final, inner)
        )
        self._tokens = StringTable(
            [token.removesuffix(END_OF_WORD) for token in final]
            + [_INNER + token for token in inner],
            tf.concat([final_ids, tf.range(len(inner))], 0),
        )
        self._inner_ids = tf.constant(inner_ids)
        self._longest = 2 * max((len(token.encode()) for token in tokens), default=0) + 2
        self._are_crossed = CrossingMerges(vocabulary, inner_ids, final_ids)

    def find_one(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds which words, string `[n]` in UTF-8 without spaces, are tokens.

        Returns `(ids, is_token)`: int32 `[n]`, which means nothing for words that are no token; and
        bool.
        """
        return self._tokens(words)

    def find_two(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds which words are two tokens, among words that are not one; see `find_one`.

        Returns `(found, ids)`: int64 `[m]`, the ascending indices of these words; and int32 `[m,
        2]`.
        """
        # Longer words are cut here: one part of such a word is still longer than any token.
        words = tf.strings.substr(_INNER + words, 0, self._longest)
        # All cuts between two bytes. A cut within a code point leaves parts that are no tokens.
        cuts = tf.raw_ops.StringSplit(input=words, delimiter="", skip_empty=False).indices
        index, cut = tf.unstack(cuts, axis=1)
        word = tf.gather(words, index)
        left = tf.strings.substr(word, tf.zeros_like(cut), cut)
        right = tf.strings.substr(word, cut, cut + _REST)
        entries, are_tokens = self._tokens(tf.stack([left, right]))
        both = tf.where(tf.reduce_all(are_tokens, 0))
        left, right = tf.unstack(tf.gather(entries, tf.squeeze(both, 1), axis=1))
        kept = tf.where(~self._are_crossed(left, right))
        ids = tf.gather_nd(tf.stack([tf.gather(self._inner_ids, left), right], 1), kept)
        return tf.gather_nd(index, tf.gather_nd(both, kept)), ids


def _merged_alone(vocabulary: Vocabulary, merge: Merger) -> list[str]:
    ids, unknown = vocabulary.token_to_id, vocabulary.token_to_id[UNKNOWN]
    tokens = [token for token in ids if token.removesuffix(END_OF_WORD) and token != UNKNOWN]
    symbols: list[int] = []
    rows: list[int] = []
    for row, token in enumerate(tokens):
        base_symbols = list(token.removesuffix(END_OF_WORD))
        base_symbols[-1] += token[len(base_symbols) :]
        # An unknown symbol after each token keeps it from merging with the next.
        symbols += [*(ids.get(symbol, unknown) for symbol in base_symbols), unknown]
        rows += [row] * (len(base_symbols) + 1)
    _, merged = merge(tf.constant(symbols, tf.int32), tf.constant(rows, tf.int32))
    counts = np.bincount(merged.numpy(), minlength=len(tokens))
    return [token for token, count in zip(tokens, counts) if count == 2]

"""A table of the words of one token, and of the words of two."""

from __future__ import annotations

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup import StringTable
from gpt1_keras.tokenization.merges import CrossingMerges, Merger
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN, Vocabulary

_INNER = " "  # before a token that does not end words; no word holds a space
_MOST_TOKENS = 2**20  # up to which `CrossingMerges` can number pairs in 64 bits
_REST = 2**31  # bytes, more than a word has


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
    """Returns the tokens that merging makes from their own characters."""
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

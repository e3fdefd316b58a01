"""Whether two adjacent tokens stay two when their letters are merged together."""

from __future__ import annotations

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.vocabulary import Vocabulary

_NONE = -1  # no symbol
_BEYOND = 2**63 - 1  # above every merge


class CrossingMerges:
    """Says whether merging joins symbols of two adjacent tokens.

    While two tokens are merged from their letters, one of the symbols that the left one ends in and
    one of those that the right one starts with stand side by side. A merge of these two joins them
    if it comes before the merges that make them parts of longer symbols of their own tokens.

    Args:
        vocabulary: tokens, and merges that are ordered and unique.
        left: int array `[m]`, the ids of the tokens that may be on the left.
        right: int array `[n]`, the ids of those that may be on the right.
    """

    def __init__(self, vocabulary: Vocabulary, left: np.ndarray, right: np.ndarray) -> None:
        # A pair of symbols is a number, and its merge, if there is one, that number plus the rank.
        self._ranks = max(1, len(vocabulary.merges))
        self._tokens = len(vocabulary.tokens)
        pairs = vocabulary.left.astype(np.int64) * self._tokens + vocabulary.right
        merges = np.sort(pairs * self._ranks + np.arange(len(pairs)))
        self._merges = tf.constant([*merges, _BEYOND], tf.int64)
        ends = _edges(vocabulary, left, vocabulary.right, vocabulary.left)
        # Of two overlapping pairs of the same rank the left one is merged: that across.
        starts = _edges(vocabulary, right, vocabulary.left, vocabulary.right, or_equal=True)
        by_id = np.zeros((self._tokens, *starts.shape[1:]), np.int32)
        by_id[right] = starts
        # In 16 bits where they fit, as every export holds these.
        is_small = max(self._tokens, len(pairs)) < 2**16
        dtype = tf.uint16 if is_small else tf.int32
        self._ends = tf.constant(ends[..., :, None], dtype)
        self._starts = tf.constant(by_id[..., None, :], dtype)

    def __call__(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        """Whether merging joins symbols of two tokens.

        Args:
            left: int32 `[n]`, the index of the left token among the constructor's.
            right: int32 `[n]`, the id of the right one.

        Returns:
            bool `[n]`.
        """
        end, end_limit = tf.unstack(tf.cast(tf.gather(self._ends, left), tf.int64), axis=1)
        start, start_limit = tf.unstack(tf.cast(tf.gather(self._starts, right), tf.int64), axis=1)
        pair = (end * self._tokens + start) * self._ranks  # (n, depth, depth)
        entry = tf.raw_ops.LowerBound(
            sorted_inputs=tf.expand_dims(self._merges, 0), values=tf.reshape(pair, [1, -1])
        )
        # For a pair without a merge, this is above all ranks.
        rank = tf.reshape(tf.gather(self._merges, entry), tf.shape(pair)) - pair
        return tf.reduce_any(rank < tf.minimum(end_limit, start_limit), [1, 2])


def _edges(
    vocabulary: Vocabulary,
    tokens: np.ndarray,
    inside: np.ndarray,
    across: np.ndarray,
    or_equal: bool = False,
) -> np.ndarray:
    """The symbols on one side of tokens while they are merged from their letters.

    Args:
        vocabulary: tokens and merges.
        tokens: int array `[n]`, ids.
        inside: int array `[merges]`, the symbol on that side of what each merge makes.
        across: int array `[merges]`, the symbol that each merge takes if it is on that side.
        or_equal: whether a merge takes it also from one of the same rank.

    Returns:
        int array `[n, 2, depth]`: of each token, symbols that some merge may take away, and below
        each a limit, which the rank of such a merge is below; then zeros.
    """
    size, merges = len(vocabulary.tokens), len(vocabulary.merges)
    # With a last entry for no symbol.
    shorter, made_by, lowest = (np.full(size + 1, fill) for fill in (_NONE, merges, merges))
    shorter[vocabulary.product], made_by[vocabulary.product] = inside, np.arange(merges)
    np.minimum.at(lowest, across, np.arange(merges))
    symbol, limit = np.asarray(tokens), np.full(len(tokens), merges)
    columns: list[np.ndarray] = []
    while not columns or np.any(symbol != _NONE):
        matters = (symbol != _NONE) & (lowest[symbol] < np.minimum(limit, merges))
        columns.append(np.where(matters, [symbol, limit], 0))
        symbol, limit = shorter[symbol], made_by[symbol] + or_equal
    edges = np.stack(columns, -1)  # (2, n, depth)
    order = np.argsort(edges[1:] == 0, axis=-1, kind="stable")
    depth = max(1, np.count_nonzero(edges[1], axis=-1).max(initial=0))
    return np.take_along_axis(edges, order, -1)[..., :depth].transpose(1, 0, 2)

"""Whether two adjacent tokens stay two when their characters are merged together."""

from __future__ import annotations

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.vocabulary import Vocabulary

_NONE = -1  # no symbol
_BEYOND = 2**63 - 1  # above every merge


class CrossingMerges:
    """Says whether merging joins symbols of two adjacent tokens, one of `left` and one of `right`.

    While two tokens are merged from their characters, the left token ends in longer and longer
    symbols, and the right one starts with longer and longer ones. Two of these that meet are joined
    by their merge if its rank is below those of the merges that make each of them part of a longer
    symbol of its own token. The vocabulary's merges must be ordered and unique.
    """

    def __init__(self, vocabulary: Vocabulary, left: np.ndarray, right: np.ndarray) -> None:
        # Each pair of symbols has a number, and each merge the number of its pair plus its rank.
        self._ranks = max(1, len(vocabulary.merges))
        self._tokens = len(vocabulary.tokens)
        pairs = vocabulary.left.astype(np.int64) * self._tokens + vocabulary.right
        merges = np.sort(pairs * self._ranks + np.arange(len(pairs)))
        self._merges = tf.constant([*merges, _BEYOND], tf.int64)
        ends = _edges(vocabulary, left, vocabulary.right, vocabulary.left)
        # If two pairs of the same rank overlap, the left one is merged: the one across the cut.
        starts = _edges(vocabulary, right, vocabulary.left, vocabulary.right, or_equal=True)
        by_id = np.zeros((self._tokens, *starts.shape[1:]), np.int32)
        by_id[right] = starts
        # In 16 bits if they fit, because every export holds these.
        is_small = max(self._tokens, len(pairs)) < 2**16
        dtype = tf.uint16 if is_small else tf.int32
        self._ends = tf.constant(ends[..., :, None], dtype)
        self._starts = tf.constant(by_id[..., None, :], dtype)

    def __call__(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        """Returns whether merging joins symbols of two tokens, bool `[n]`.

        `left`, int32 `[n]`, are indices in the constructor's `left`; `right`, int32 `[n]`, are ids.
        """
        end, end_limit = tf.unstack(tf.cast(tf.gather(self._ends, left), tf.int64), axis=1)
        start, start_limit = tf.unstack(tf.cast(tf.gather(self._starts, right), tf.int64), axis=1)
        pair = (end * self._tokens + start) * self._ranks  # (n, depth, depth)
        entry = tf.raw_ops.LowerBound(
            sorted_inputs=tf.expand_dims(self._merges, 0), values=tf.reshape(pair, [1, -1])
        )
        # The difference is above all ranks if the pair has no merge.
        rank = tf.reshape(tf.gather(self._merges, entry), tf.shape(pair)) - pair
        return tf.reduce_any(rank < tf.minimum(end_limit, start_limit), [1, 2])


def _edges(
    vocabulary: Vocabulary,
    tokens: np.ndarray,
    inside: np.ndarray,
    across: np.ndarray,
    or_equal: bool = False,
) -> np.ndarray:
    """Returns the symbols at one edge of tokens while they are merged from their characters.

    For each token, int `[n]`, these are the symbols that a merge across the cut may take, each with
    a limit: such a merge must have a rank below it. They are int `[n, 2, depth]`, filled with
    zeros. `inside` and `across`, int `[merges]`, are the side of each merge that is at this edge if
    the merge is inside the token, and if it crosses the cut. With `or_equal`, a merge across the
    cut precedes one inside of the same rank.
    """
    size, merges = len(vocabulary.tokens), len(vocabulary.merges)
    # The last entry is for no symbol.
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

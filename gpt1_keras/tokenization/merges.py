"""Byte-pair merging of the symbols of many words at once, on flat integer tensors."""

from __future__ import annotations

import itertools

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.graph_ops import call_if
from gpt1_keras.tokenization.lookup import PairTable
from gpt1_keras.tokenization.vocabulary import Vocabulary

_NONE = -1  # no symbol
_BEYOND = 2**63 - 1  # above every merge

# For finding the pairs that may ever be joined. The 40,000 original merges take 250,000 steps.
_MOST_STEPS = 2**22


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


class Merger:
    """Merges symbols in the order of the merges' ranks (Sennrich et al., 2016).

    In each round, the symbols fall into pieces that no merge will ever join. Each piece merges its
    pairs of the lowest rank, and also every pair whose symbols no merge of a lower rank will ever
    join to their other neighbours. So the number of rounds is what the hardest piece needs, not the
    number of different merges in a text.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        merges = zip(vocabulary.left.tolist(), vocabulary.right.tolist())
        ranks = {pair: rank for rank, pair in reversed(list(enumerate(merges)))}
        bounds = _lowest_ranks(vocabulary)
        left, right = np.array(list(bounds), np.int32).reshape(-1, 2).T
        is_small = max(len(vocabulary.tokens), len(vocabulary.merges)) < np.iinfo(np.uint16).max
        dtype = np.uint16 if is_small else np.int32
        absent = np.iinfo(dtype).max  # above all ranks
        values = [(ranks.get(pair, absent), bound) for pair, bound in bounds.items()]
        # The rank of each pair of symbols, and its bound: the lowest rank of all merges that may
        # ever join the two, as they are or as parts of longer symbols.
        self._rank_and_bound = PairTable(
            left, right, np.array(values, np.int32).reshape(-1, 2), dtype
        )
        self._product = tf.constant(np.append(vocabulary.product, 0), tf.int32)
        self._is_ordered = vocabulary.merges_are_ordered

    def __call__(self, symbols: tf.Tensor, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges until no pair has a rank.

        Args:
            symbols: int32 `[n]`, the base symbols of all words. The last symbol of a word ends
                words or is unknown, so no merge crosses words.
            words: int32 `[n]`, the index of the word that each symbol belongs to, ascending. Both
                are returned, after merging.
        """
        following = tf.concat([symbols[1:], symbols[:1]], 0)
        return tf.while_loop(
            lambda symbols, words, rank, bound: tf.reduce_any(rank != self._rank_and_bound.absent),
            self._round,
            [symbols, words, *self._rank_and_bound(symbols, following)],
            shape_invariants=[tf.TensorShape([None])] * 4,
        )[:2]

    # A pair has the index of its left symbol. The last symbol makes a pair with the first, and no
    # merge joins these two: so there are as many pairs as symbols, and rolling finds neighbours. A
    # round has few ops, constants included, because each op costs time in every round.

    def _round(
        self, symbols: tf.Tensor, words: tf.Tensor, rank: tf.Tensor, bound: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Merges once: takes and returns symbols, words, and each pair's rank and bound."""
        zero, right, left = tf.constant(0), tf.constant([-1, 1]), tf.constant([1, -1])
        is_merged = self._choose_pairs(rank, bound, zero, right, left)
        product = tf.raw_ops.Gather(params=self._product, indices=tf.where(is_merged, rank, zero))
        symbols = tf.where(is_merged, product, symbols)
        kept = tf.where(~_roll(is_merged, right, zero))
        symbols = tf.gather_nd(symbols, kept)
        words = tf.gather_nd(words, kept)
        return symbols, words, *self._rank_and_bound(symbols, _roll(symbols, left, zero))

    def _choose_pairs(
        self, rank: tf.Tensor, bound: tf.Tensor, zero: tf.Tensor, right: tf.Tensor, left: tf.Tensor
    ) -> tf.Tensor:
        """Returns which pairs to merge in this round: bool `[n]`."""
        absent = tf.constant(self._rank_and_bound.absent)
        piece = tf.raw_ops.Cumsum(x=tf.cast(bound == absent, tf.int32), axis=zero)
        lowest = tf.math.unsorted_segment_min(rank, piece, tf.size(rank) + tf.constant(1))
        is_lowest = (rank != absent) & (rank == tf.raw_ops.Gather(params=lowest, indices=piece))
        if not self._is_ordered:  # a merge may make a pair of a lower rank than this round's
            return _first_of_each(is_lowest, piece)
        overlap = tf.raw_ops.Any(input=is_lowest & _roll(is_lowest, right, zero), axis=zero)
        is_merged = call_if(overlap, lambda: _every_other(is_lowest), lambda: is_lowest)
        beside = tf.minimum(_roll(bound, right, zero), _roll(bound, left, zero))
        return is_merged | (rank < beside)


def _roll(values: tf.Tensor, sizes: tf.Tensor, axis: tf.Tensor) -> tf.Tensor:
    """Swaps the first and the last part of values, `[n]`; one of the two sizes is 1."""
    # tf.roll hands even the shortest tensor to other threads, which takes longer than the roll.
    first, second = tf.raw_ops.SplitV(value=values, size_splits=sizes, axis=axis, num_split=2)
    return tf.concat([second, first], axis)


def _first_of_each(pairs: tf.Tensor, piece: tf.Tensor) -> tf.Tensor:
    """Keeps only the first of the pairs, bool `[n]`, in each piece."""
    index = tf.range(tf.size(pairs))
    first = tf.math.unsorted_segment_min(
        tf.where(pairs, index, tf.size(pairs)), piece, tf.size(pairs) + 1
    )
    return pairs & (index == tf.gather(first, piece))


def _every_other(pairs: tf.Tensor) -> tf.Tensor:
    """Keeps every other one of a run of overlapping pairs, bool `[n]`, as those of `a a a a`."""
    starts = pairs & ~tf.concat([[False], pairs[:-1]], 0)
    start = tf.cast(tf.where(starts)[:, 0], tf.int32)
    run = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32)) - 1, 0)
    return pairs & ((tf.range(tf.size(pairs)) - tf.gather(start, run)) % 2 == 0)


def _lowest_ranks(vocabulary: Vocabulary) -> dict[tuple[int, int], int]:
    """Returns the lowest rank of a merge that may ever join two adjacent symbols, for each pair.

    A merge may join any symbol that its left side may end in to any symbol that its right side may
    start with. All other pairs are never joined. Raises ValueError for merges made to take hours.
    """
    ends: dict[int, set[int]] = {}
    starts: dict[int, set[int]] = {}
    bounds: dict[tuple[int, int], int] = {}
    steps = 0
    merges = zip(vocabulary.left.tolist(), vocabulary.right.tolist(), vocabulary.product.tolist())
    # Shorter products come first, so that the sides of a merge are made before it.
    for rank, (left, right, product) in sorted(
        enumerate(merges), key=lambda merge: len(vocabulary.tokens[merge[1][2]])
    ):
        left_ends = ends.get(left, {left})
        right_starts = starts.get(right, {right})
        steps += len(left_ends) * len(right_starts)
        if steps > _MOST_STEPS:
            raise ValueError(
                f"The merges may bring together more than {_MOST_STEPS} pairs of symbols, as no "
                f"learned ones do; reached at '{vocabulary.tokens[product]}'."
            )
        for pair in itertools.product(left_ends, right_starts):
            bounds[pair] = min(rank, bounds.get(pair, rank))
        ends.setdefault(product, {product}).update(ends.get(right, {right}))
        starts.setdefault(product, {product}).update(starts.get(left, {left}))
    return bounds

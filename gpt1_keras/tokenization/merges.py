"""Byte-pair merging of many words at once, on flat integer tensors."""

from __future__ import annotations

import itertools

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.pair_table import PairTable
from gpt1_keras.tokenization.lookup.selection import call_if
from gpt1_keras.tokenization.vocabulary import Vocabulary

# To find all pairs. The original merges, 40,000, take a quarter of a million.
_MOST_STEPS = 2**22


class Merger:
    """Merges symbols in the order of the merges' ranks (Sennrich et al., 2016).

    In each round, the symbols fall into pieces that no merge will ever join, and every piece
    merges the pairs of its lowest rank, and all others whose symbols no merge of a lower rank will
    ever join to their neighbours. So there are as many rounds as the hardest piece needs, not as
    many as a long text uses merges.

    Args:
        vocabulary: tokens and merges.
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
        # For each pair of symbols, its rank, and the lowest of those of all merges that may ever
        # join the two, which other merges may have made part of longer symbols by then.
        self._rank_and_bound = PairTable(
            left, right, np.array(values, np.int32).reshape(-1, 2), dtype
        )
        self._product = tf.constant(np.append(vocabulary.product, 0), tf.int32)
        self._is_ordered = vocabulary.merges_are_ordered

    def __call__(self, symbols: tf.Tensor, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges until no pair has a rank.

        Args:
            symbols: int32 `[n]`, the base symbols of all words. A word's last symbol is one that
                ends words, or unknown, so no merge crosses words.
            words: int32 `[n]`, the index of the word that each symbol belongs to, ascending.

        Returns:
            `(symbols, words)` as above, merged.
        """
        following = tf.concat([symbols[1:], symbols[:1]], 0)
        return tf.while_loop(
            lambda symbols, words, rank, bound: tf.reduce_any(rank != self._rank_and_bound.absent),
            self._round,
            [symbols, words, *self._rank_and_bound(symbols, following)],
            shape_invariants=[tf.TensorShape([None])] * 4,
        )[:2]

    # A pair has the index of its left symbol. The last symbol is paired with the first, which no
    # merge joins: arrays of pairs are then as long as those of symbols, and neighbours are found by
    # rolling. A round should have few ops, constants included, as each costs time in every round.

    def _round(
        self, symbols: tf.Tensor, words: tf.Tensor, rank: tf.Tensor, bound: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Merges once: from symbols, words, and each pair's rank and bound to the same."""
        zero, right, left = tf.constant(0), tf.constant([-1, 1]), tf.constant([1, -1])
        hit = self._find_hits(rank, bound, zero, right, left)
        product = tf.raw_ops.Gather(params=self._product, indices=tf.where(hit, rank, zero))
        symbols = tf.where(hit, product, symbols)
        kept = tf.where(~_roll(hit, right, zero))
        symbols = tf.gather_nd(symbols, kept)
        words = tf.gather_nd(words, kept)
        return symbols, words, *self._rank_and_bound(symbols, _roll(symbols, left, zero))

    def _find_hits(
        self, rank: tf.Tensor, bound: tf.Tensor, zero: tf.Tensor, right: tf.Tensor, left: tf.Tensor
    ) -> tf.Tensor:
        """Which pairs to merge in this round: bool `[n]`."""
        absent = tf.constant(self._rank_and_bound.absent)
        piece = tf.raw_ops.Cumsum(x=tf.cast(bound == absent, tf.int32), axis=zero)
        lowest = tf.math.unsorted_segment_min(rank, piece, tf.size(rank) + tf.constant(1))
        hit = (rank != absent) & (rank == tf.raw_ops.Gather(params=lowest, indices=piece))
        if not self._is_ordered:  # a merge may bring up a lower rank than the round's
            return _first_of_each(hit, piece)
        overlap = tf.raw_ops.Any(input=hit & _roll(hit, right, zero), axis=zero)
        hit = call_if(overlap, lambda: _every_other(hit), lambda: hit)
        beside = tf.minimum(_roll(bound, right, zero), _roll(bound, left, zero))
        return hit | (rank < beside)


def _roll(values: tf.Tensor, sizes: tf.Tensor, axis: tf.Tensor) -> tf.Tensor:
    """Swaps the two parts of values, `[n]`, of these sizes, one of which is 1."""
    # tf.roll hands even the shortest tensor to other threads, which takes longer than the rest.
    first, second = tf.raw_ops.SplitV(value=values, size_splits=sizes, axis=axis, num_split=2)
    return tf.concat([second, first], axis)


def _first_of_each(hit: tf.Tensor, piece: tf.Tensor) -> tf.Tensor:
    """Keeps the first hit of each piece."""
    index = tf.range(tf.size(hit))
    first = tf.math.unsorted_segment_min(
        tf.where(hit, index, tf.size(hit)), piece, tf.size(hit) + 1
    )
    return hit & (index == tf.gather(first, piece))


def _every_other(hit: tf.Tensor) -> tf.Tensor:
    """Keeps every other hit of a run, from the left: the pairs of `a a a a` overlap."""
    starts = hit & ~tf.concat([[False], hit[:-1]], 0)
    start = tf.cast(tf.where(starts)[:, 0], tf.int32)
    run = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32)) - 1, 0)
    return hit & ((tf.range(tf.size(hit)) - tf.gather(start, run)) % 2 == 0)


def _lowest_ranks(vocabulary: Vocabulary) -> dict[tuple[int, int], int]:
    """The lowest rank of a merge that may ever join two adjacent symbols, for each such pair.

    They are, for every merge, the symbols that its left side may end in, each with those that its
    right side may start with. Any other pair of adjacent symbols stays apart for ever.

    Raises:
        ValueError: merges that were made to take hours.
    """
    ends: dict[int, set[int]] = {}
    starts: dict[int, set[int]] = {}
    bounds: dict[tuple[int, int], int] = {}
    steps = 0
    merges = zip(vocabulary.left.tolist(), vocabulary.right.tolist(), vocabulary.product.tolist())
    # Shorter products first: by then, everything that a merge's sides are made of has been seen.
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

"""Byte-pair merging of many words at once, on flat integer tensors."""

from __future__ import annotations

import itertools

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.pair_table import ABSENT, PairTable
from gpt1_keras.tokenization.vocabulary import Vocabulary

# The value of a pair that no merge joins now, but whose symbols a later merge may bring together.
_LATER = ABSENT - 1
# To find all pairs. The original merges, 40,000, take a quarter of a million.
_MOST_STEPS = 2**22


class Merger:
    """Merges symbols in the order of the merges' ranks (Sennrich et al., 2016).

    In each round, the symbols fall into pieces that no merge will ever join, and every piece
    merges the pairs of its lowest rank. So there are as many rounds as the hardest piece needs,
    not as many as a long text uses merges.

    Args:
        vocabulary: tokens and merges.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        ranks = {
            pair: rank
            for rank, pair in reversed(
                list(enumerate(zip(vocabulary.left.tolist(), vocabulary.right.tolist())))
            )
        }
        values = dict.fromkeys(_joinable(vocabulary), int(_LATER)) | ranks
        left, right = np.array(list(values), np.int32).reshape(-1, 2).T
        self._value = PairTable(left, right, list(values.values()))
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
        return tf.while_loop(
            lambda symbols, words, more: more,
            lambda symbols, words, more: self._round(symbols, words),
            [symbols, words, tf.size(symbols) > 1],
            shape_invariants=[tf.TensorShape([None])] * 2 + [tf.TensorShape([])],
        )[:2]

    def _round(
        self, symbols: tf.Tensor, words: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Merges once in each piece: the new symbols and words, and whether any pair was merged."""
        left, right = symbols[:-1], symbols[1:]
        value = self._value(left, right)
        piece = tf.cumsum(tf.cast(value == ABSENT, tf.int32))
        lowest = tf.math.unsorted_segment_min(value, piece, tf.size(symbols))
        hit = (value < _LATER) & (value == tf.gather(lowest, piece))
        hit = self._without_conflicts(hit, piece)
        product = tf.gather(self._product, tf.where(hit, value, 0))
        symbols = tf.concat([tf.where(hit, product, left), symbols[-1:]], 0)
        kept = tf.where(tf.concat([[True], ~hit], 0))[:, 0]
        return tf.gather(symbols, kept), tf.gather(words, kept), tf.reduce_any(hit)

    def _without_conflicts(self, hit: tf.Tensor, piece: tf.Tensor) -> tf.Tensor:
        """Keeps the pairs that may be merged in the same round: bool `[n - 1]`."""
        if not self._is_ordered:  # a merge may bring up a lower rank than the round's
            return _first_of_each(hit, piece)
        return tf.cond(tf.reduce_any(hit[1:] & hit[:-1]), lambda: _every_other(hit), lambda: hit)


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


def _joinable(vocabulary: Vocabulary) -> set[tuple[int, int]]:
    """The pairs of symbols that can be adjacent before some merge joins them.

    They are, for every merge, the symbols that its left side may end in, each with those that its
    right side may start with. Any other pair of adjacent symbols stays apart for ever.

    Raises:
        ValueError: merges that were made to take hours.
    """
    ends: dict[int, set[int]] = {}
    starts: dict[int, set[int]] = {}
    pairs: set[tuple[int, int]] = set()
    steps = 0
    merges = zip(vocabulary.left.tolist(), vocabulary.right.tolist(), vocabulary.product.tolist())
    # Shorter products first: by then, everything that a merge's sides are made of has been seen.
    for left, right, product in sorted(merges, key=lambda ids: len(vocabulary.tokens[ids[2]])):
        left_ends = ends.get(left, {left})
        right_starts = starts.get(right, {right})
        steps += len(left_ends) * len(right_starts)
        if steps > _MOST_STEPS:
            raise ValueError(
                f"The merges may bring together more than {_MOST_STEPS} pairs of symbols, as no "
                f"learned ones do; reached at '{vocabulary.tokens[product]}'."
            )
        pairs.update(itertools.product(left_ends, right_starts))
        ends.setdefault(product, {product}).update(ends.get(right, {right}))
        starts.setdefault(product, {product}).update(starts.get(left, {left}))
    return pairs

"""Byte-pair merging of many words at once, on flat integer tensors."""

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.pair_table import ABSENT, PairTable

# The value of a pair that no merge joins now, but whose symbols a later merge may bring together.
_LATER = ABSENT - 1


class Merger:
    """Merges symbols in the order of the merges' ranks (Sennrich et al., 2016).

    In each round, the symbols fall into pieces that no merge will ever join, and every piece
    merges the pairs of its lowest rank. So the rounds are as many as the hardest piece needs, not
    as the merges that a long text uses.

    Args:
        vocabulary: `Vocabulary`.
    """

    def __init__(self, vocabulary):
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

    def __call__(self, symbols, words):
        """Merges until no pair has a rank.

        Args:
            symbols: int32 `[n]`, the base symbols of all words. A word's last symbol is one that
                ends words, or unknown, so no merge crosses words.
            words: int32 `[n]`, the number of the word that each symbol belongs to, ascending.

        Returns:
            `(symbols, words)` as above, merged.
        """
        return tf.while_loop(
            lambda symbols, words, more: more,
            lambda symbols, words, more: self._round(symbols, words),
            [symbols, words, tf.size(symbols) > 1],
            shape_invariants=[tf.TensorShape([None])] * 2 + [tf.TensorShape([])],
        )[:2]

    def _round(self, symbols, words):
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

    def _without_conflicts(self, hit, piece):
        """Keeps the pairs that may be merged in the same round."""
        if not self._is_ordered:  # a merge may bring up a lower rank than the round's
            return _first_of_each(hit, piece)
        return tf.cond(tf.reduce_any(hit[1:] & hit[:-1]), lambda: _every_other(hit), lambda: hit)


def _first_of_each(hit, piece):
    """Keeps the first hit of each piece."""
    position = tf.range(tf.size(hit))
    first = tf.math.unsorted_segment_min(
        tf.where(hit, position, tf.size(hit)), piece, tf.size(hit) + 1
    )
    return hit & (position == tf.gather(first, piece))


def _every_other(hit):
    """Keeps every other hit of a run, from the left: the pairs of `a a a a` overlap."""
    begins = hit & ~tf.concat([[False], hit[:-1]], 0)
    begin = tf.cast(tf.where(begins)[:, 0], tf.int32)
    run = tf.maximum(tf.cumsum(tf.cast(begins, tf.int32)) - 1, 0)
    return hit & ((tf.range(tf.size(hit)) - tf.gather(begin, run)) % 2 == 0)


def _joinable(vocabulary):
    """The pairs of symbols that can stand next to each other before some merge joins them.

    They are, for every merge, the symbols that its left side may end in, each with those that its
    right side may begin with. Whatever other pair is met stays apart for ever.
    """
    ends: dict[int, set[int]] = {}
    begins: dict[int, set[int]] = {}
    pairs = set()
    merges = zip(vocabulary.left.tolist(), vocabulary.right.tolist(), vocabulary.product.tolist())
    # Shorter products first: all that a merge's sides are made of has then been seen.
    for left, right, product in sorted(merges, key=lambda ids: len(vocabulary.tokens[ids[2]])):
        left_ends = ends.get(left, {left})
        right_begins = begins.get(right, {right})
        pairs.update((end, begin) for end in left_ends for begin in right_begins)
        ends.setdefault(product, {product}).update(ends.get(right, {right}))
        begins.setdefault(product, {product}).update(begins.get(left, {left}))
    return pairs

"""Unigram and interpolated modified Kneser-Ney models of token ids, by counting alone."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from training.corpus.corpus_format import Corpus, Split

ORDER = 3
# Where no discounts can be estimated, as in a small corpus where no n-gram occurs four times.
_FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)


class Unigram:
    """The probability of each token regardless of context, smoothed by adding one.

    Args:
        vocabulary_size: special tokens included.
    """

    def __init__(self, split: Split, vocabulary_size: int) -> None:
        counts = np.ones(vocabulary_size, np.int64)
        for shard in split.shards:
            counts += np.bincount(shard, minlength=vocabulary_size)
        self._probabilities = counts / counts.sum()

    def probabilities(self, contexts: ArrayLike, words: ArrayLike) -> np.ndarray:
        """Returns probabilities, as `KneserNey.probabilities`."""
        return self._probabilities[words]


class KneserNey:
    """The probability of each token after up to two others (Chen & Goodman 1998).

    There is a level for each context length. It discounts its counts, and gives the probability
    that this frees to the level below; the lowest level gives it to all tokens alike. The highest
    level counts how often an n-gram occurs, the others how many different tokens it follows.

    Attributes:
        levels: list of `Level`, from unigrams to trigrams.
    """

    def __init__(self, split: Split, vocabulary_size: int) -> None:
        if vocabulary_size**ORDER > 2**64:
            raise ValueError(
                f"N-grams of order {ORDER} are numbered in 64 bits, which is enough for "
                f"{int(2 ** (64 / ORDER))} tokens. The corpus has {vocabulary_size}."
            )
        self.vocabulary_size = vocabulary_size
        self.levels = []
        for length in range(1, ORDER + 1):
            counted = min(length + 1, ORDER)
            keys = np.concatenate(
                [_keys(shard, counted, vocabulary_size) for shard in split.shards]
            )
            if counted > length:
                keys = np.unique(keys) % np.uint64(vocabulary_size**length)
            self.levels.append(Level(*np.unique(keys, return_counts=True), vocabulary_size))

    def probabilities(self, contexts: ArrayLike, words: ArrayLike) -> np.ndarray:
        """Returns the probabilities of tokens, float64 `[n]`.

        Args:
            contexts: unsigned int `[n, length]`, the tokens before each; only the last two matter.
            words: unsigned int `[n]`.
        """
        contexts, words = np.asarray(contexts, np.uint64), np.asarray(words, np.uint64)
        keys = np.zeros(len(words), np.uint64)
        found = np.full(len(words), 1 / self.vocabulary_size)
        for length, level in enumerate(self.levels[: contexts.shape[1] + 1]):
            if length:
                keys += contexts[:, -length] * np.uint64(self.vocabulary_size ** (length - 1))
            found = level.interpolate(keys, words, found)
        return found


class Level:
    """The n-grams of one length, discounted.

    Args:
        keys: uint64 `[n]`, sorted: n-grams as numbers, whose digits are their tokens.
        counts: int64 `[n]`.
        vocabulary_size: the base of the digits.

    Attributes:
        discounts: float64 `[3]`, what is subtracted from counts of 1, of 2, and of 3 and more.
    """

    def __init__(self, keys: np.ndarray, counts: np.ndarray, vocabulary_size: int) -> None:
        self.discounts = estimate_discounts(counts)
        self._base = np.uint64(vocabulary_size)
        taken = self.discounts[np.minimum(counts, 3) - 1]
        contexts = keys // self._base
        starts = np.flatnonzero(np.append(True, contexts[1:] != contexts[:-1])[: len(keys)])
        totals = np.add.reduceat(counts, starts)
        lengths = np.diff(np.append(starts, len(keys)))
        self._keys, self._shares = keys, (counts - taken) / np.repeat(totals, lengths)
        self._contexts, self._freed = contexts[starts], np.add.reduceat(taken, starts) / totals

    def interpolate(self, contexts: np.ndarray, words: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """Returns the probabilities of words `[n]` after contexts `[n]`.

        `lower` holds their probabilities on the level below, float64 `[n]`.
        """
        shares = _look_up(self._keys, self._shares, contexts * self._base + words, 0.0)
        return shares + _look_up(self._contexts, self._freed, contexts, 1.0) * lower


def estimate_discounts(counts: np.ndarray) -> np.ndarray:
    """Estimates the discounts of counts of 1, of 2, and of 3 and more (Chen & Goodman 1998).

    Args:
        counts: int `[n]`, all at least 1.

    Returns:
        float64 `[3]`, each above 0 and below 1, 2 and 3.
    """
    ones, *others = (np.count_nonzero(counts == count) for count in (1, 2, 3, 4))
    if not all((ones, *others)):
        return np.array(_FALLBACK_DISCOUNTS)
    scale = ones / (ones + 2 * others[0])
    discounts = [
        count - (count + 1) * scale * more / fewer
        for count, (fewer, more) in enumerate(zip((ones, *others), others), 1)
    ]
    return np.array(discounts if min(discounts) > 0 else _FALLBACK_DISCOUNTS)


def ngram_perplexity(model: Unigram | KneserNey, split: Split) -> float:
    """Returns the perplexity of a split, except for the first token of each shard."""
    logarithms = []
    for shard in split.shards:
        for length in range(1, min(ORDER, len(shard))):
            ngrams = np.lib.stride_tricks.sliding_window_view(shard, length + 1)
            if length < ORDER - 1:  # only a shard's first tokens have a shorter context
                ngrams = ngrams[:1]
            logarithms.append(np.log(model.probabilities(ngrams[:, :-1], ngrams[:, -1])))
    if not logarithms:
        raise ValueError(f"The split {split.name!r} has no token that follows another.")
    return float(np.exp(-np.mean(np.concatenate(logarithms))))


def score_corpus(corpus: Corpus, tokens: int | None = None) -> dict[str, Any]:
    """Counts the train split of a corpus and scores its validation split.

    Args:
        corpus: with both splits.
        tokens: how many to score, from the first; all by default.

    Returns:
        dict of `corpus_fingerprint`, `validation_tokens`, `unigram_perplexity`,
        `trigram_perplexity`, and the trigram's `discounts`, a list for each order.
    """
    train, validation = corpus.split("train"), _first(corpus.split("validation"), tokens)
    unigram = Unigram(train, corpus.vocabulary_size)
    trigram = KneserNey(train, corpus.vocabulary_size)
    return {
        "corpus_fingerprint": corpus.fingerprint,
        "validation_tokens": sum(max(0, len(shard) - 1) for shard in validation.shards),
        "unigram_perplexity": ngram_perplexity(unigram, validation),
        "trigram_perplexity": ngram_perplexity(trigram, validation),
        "discounts": [level.discounts.tolist() for level in trigram.levels],
    }


def _first(split: Split, tokens: int | None) -> Split:
    """Returns the start of a split in which `tokens` tokens follow another token."""
    if tokens is None:
        return split
    if tokens < 1:
        raise ValueError(f"tokens must be at least 1. Received: {tokens}.")
    shards = []
    for shard in split.shards:
        if tokens > 0:
            shards.append(shard[: tokens + 1])
            tokens -= max(0, len(shard) - 1)
    return Split(split.name, tuple(shards))


def _keys(shard: np.ndarray, length: int, base: int) -> np.ndarray:
    """Returns the n-grams of a shard, uint64 `[n]`: tokens are digits, the first the highest."""
    count = max(0, len(shard) - length + 1)
    keys = np.zeros(count, np.uint64)
    for start in range(length):
        keys *= np.uint64(base)
        keys += shard[start : start + count]
    return keys


def _look_up(
    keys: np.ndarray, values: np.ndarray, wanted: np.ndarray, default: float
) -> np.ndarray:
    """Returns the values of the wanted keys, or the default; `keys` are sorted."""
    if not len(keys):
        return np.full(len(wanted), default)
    indices = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[indices] == wanted, values[indices], default)

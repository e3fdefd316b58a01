"""N-gram models of a corpus: how far counting alone gets, to set a decoder's perplexity beside.

    python -m training.ngrams --corpus DIR --output FILE.json

It counts the train split and scores every token of the validation split but the first of each
shard, exactly those that `training.corpus.windows.sequential_windows` scores; or with `--tokens` the first
of them, as many as a run with `--validation-batches` looks at. The unigram is smoothed by
adding one; the trigram by interpolated modified Kneser-Ney (Chen & Goodman 1998), the best that
counting alone is known to do. No n-gram crosses shards. About 50 bytes of memory a token.
"""

import argparse
import json
import pathlib
import sys
import time

import numpy as np

from gpt1_keras.files import atomic_path
from training.corpus.windows import Corpus, Split

ORDER = 3
# Where no discounts can be estimated, as in a corpus so small that nothing occurs four times.
_FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)


class Unigram:
    """The probability of each token whatever stands before it, as if all occurred once more.

    Args:
        split: `training.corpus.windows.Split`.
        vocabulary_size: int.
    """

    def __init__(self, split, vocabulary_size):
        counts = np.ones(vocabulary_size, np.int64)
        for shard in split.shards:
            counts += np.bincount(shard, minlength=vocabulary_size)
        self._probabilities = counts / counts.sum()

    def probabilities(self, contexts, words):
        """As `KneserNey.probabilities`."""
        return self._probabilities[words]


class KneserNey:
    """The probability of each token behind up to `order - 1` others.

    A level for each length of context discounts its counts, and what that frees goes to the level
    below; what the lowest frees goes to all tokens alike. The highest level counts how often an
    n-gram occurs, the others behind how many different tokens it does.

    Args:
        split: `training.corpus.windows.Split`.
        vocabulary_size: int.
        order: int, 3 for trigrams.

    Attributes:
        vocabulary_size: int.
        levels: list of `Level`, from unigrams to n-grams of `order`.

    Raises:
        ValueError: n-grams of so large a vocabulary cannot be numbered in 64 bits.
    """

    def __init__(self, split, vocabulary_size, order=ORDER):
        if vocabulary_size**order > 2**64:
            raise ValueError(
                f"N-grams of order {order} are numbered in 64 bits, which is enough for "
                f"{int(2 ** (64 / order))} tokens. The corpus has {vocabulary_size}."
            )
        self.vocabulary_size = vocabulary_size
        self.levels = []
        for length in range(1, order + 1):
            counted = min(length + 1, order)
            keys = np.concatenate(
                [_keys(shard, counted, vocabulary_size) for shard in split.shards]
            )
            if counted > length:
                keys = np.unique(keys) % np.uint64(vocabulary_size**length)
            self.levels.append(Level(*np.unique(keys, return_counts=True), vocabulary_size))

    def probabilities(self, contexts, words):
        """The probabilities of tokens.

        Args:
            contexts: unsigned int `[n, length]`, the tokens before each. No more than the last
                `order - 1` matter.
            words: unsigned int `[n]`.

        Returns:
            float64 `[n]`.
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
        keys: uint64 `[n]`, sorted: the n-grams, each its tokens as digits.
        counts: int64 `[n]`.
        vocabulary_size: int, the base of the digits.

    Attributes:
        discounts: float64 `[3]`, what is taken from counts of 1, of 2, and of 3 and more.
    """

    def __init__(self, keys, counts, vocabulary_size):
        self.discounts = estimate_discounts(counts)
        self._base = np.uint64(vocabulary_size)
        taken = self.discounts[np.minimum(counts, 3) - 1]
        contexts = keys // self._base
        starts = np.flatnonzero(np.append(True, contexts[1:] != contexts[:-1])[: len(keys)])
        totals = np.add.reduceat(counts, starts)
        sizes = np.diff(np.append(starts, len(keys)))
        self._keys, self._shares = keys, (counts - taken) / np.repeat(totals, sizes)
        self._contexts, self._freed = contexts[starts], np.add.reduceat(taken, starts) / totals

    def interpolate(self, contexts, words, lower):
        """The probabilities of words `[n]` behind contexts `[n]`, given those of a level below."""
        shares = _look_up(self._keys, self._shares, contexts * self._base + words, 0.0)
        return shares + _look_up(self._contexts, self._freed, contexts, 1.0) * lower


def estimate_discounts(counts):
    """The discounts of counts of 1, of 2, and of 3 and more (Chen & Goodman 1998).

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


def perplexity(model, split):
    """The perplexity of a split, but for the first token of each shard.

    Args:
        model: `Unigram` or `KneserNey`.
        split: `training.corpus.windows.Split`.

    Returns:
        float.

    Raises:
        ValueError: no shard has two tokens.
    """
    logarithms = []
    for shard in split.shards:
        for length in range(1, min(ORDER, len(shard))):
            ngrams = np.lib.stride_tricks.sliding_window_view(shard, length + 1)
            if length < ORDER - 1:  # only the shard's beginning has a context so short
                ngrams = ngrams[:1]
            logarithms.append(np.log(model.probabilities(ngrams[:, :-1], ngrams[:, -1])))
    if not logarithms:
        raise ValueError(f"The split {split.name!r} has no token that another stands before.")
    return float(np.exp(-np.mean(np.concatenate(logarithms))))


def score(corpus, tokens=None):
    """Counts the train split of a corpus and scores its validation split.

    Args:
        corpus: `training.corpus.windows.Corpus`.
        tokens: int, how many to score, the first ones; all by default.

    Returns:
        dict of `corpus_fingerprint`, `validation_tokens`, `unigram_perplexity`,
        `trigram_perplexity`, and the trigram's `discounts`, a list for each order.

    Raises:
        ValueError: the corpus lacks one of the splits, or there is nothing to score in it.
    """
    train, validation = corpus.split("train"), _first(corpus.split("validation"), tokens)
    unigram = Unigram(train, corpus.vocabulary_size)
    trigram = KneserNey(train, corpus.vocabulary_size)
    return {
        "corpus_fingerprint": corpus.fingerprint,
        "validation_tokens": sum(max(0, len(shard) - 1) for shard in validation.shards),
        "unigram_perplexity": perplexity(unigram, validation),
        "trigram_perplexity": perplexity(trigram, validation),
        "discounts": [level.discounts.tolist() for level in trigram.levels],
    }


def _first(split, tokens):
    """The beginning of a split, in which so many tokens stand behind another."""
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


def _keys(shard, length, base):
    """All n-grams of a shard, uint64 `[n]`: each its tokens as digits, the first the highest."""
    count = max(0, len(shard) - length + 1)
    keys = np.zeros(count, np.uint64)
    for start in range(length):
        keys *= np.uint64(base)
        keys += shard[start : start + count]
    return keys


def _look_up(keys, values, wanted, default):
    """The values of the wanted keys, which are sorted; the default for those that are missing."""
    if not len(keys):
        return np.full(len(wanted), default)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], default)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m training.ngrams",
        description="Score a corpus's validation split by a unigram and a trigram model.",
    )
    parser.add_argument("--corpus", required=True, help="folder that training.corpus wrote")
    parser.add_argument(
        "--output", help="JSON file for the scores, as training.plot_pretraining takes it"
    )
    parser.add_argument("--tokens", type=int, help="score only the first (default: all)")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        scores = score(Corpus(options.corpus), options.tokens)
        if options.output:
            with atomic_path(options.output) as temporary:
                pathlib.Path(temporary).write_text(json.dumps(scores, indent=2) + "\n")
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"Unigram, add-one: validation perplexity {scores['unigram_perplexity']:.2f}")
    print(f"Trigram, Kneser-Ney: validation perplexity {scores['trigram_perplexity']:.2f}")
    print(f"Counted and scored in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

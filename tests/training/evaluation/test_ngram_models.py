"""N-gram models: probabilities equal a plain implementation's, and sum to one."""

import collections
import itertools
import json
import math

import numpy as np
import pytest

from tests.helpers.made_up_corpus import write_corpus
from training.corpus.corpus_format import Corpus, Split
from training.corpus.windows import SequentialWindows
from training.evaluation.ngram_models import (
    KneserNey,
    Unigram,
    estimate_discounts,
    ngram_perplexity,
    score_corpus,
)
from training.paper.commands import ngrams

VOCABULARY = 9


def make_split(name, *lengths, seed=0):
    """Shards of random tokens, of which small ones are frequent and likely to follow each other."""
    random = np.random.default_rng(seed)
    shards = []
    for length in lengths:
        steps = random.geometric(0.5, length) - 1
        shards.append(((np.cumsum(steps) + steps) % (VOCABULARY - 1)).astype(np.uint16))
    return Split(name, tuple(shards))


class PlainKneserNey:
    """The same model, word by word as Chen & Goodman (1998) write it."""

    def __init__(self, shards, vocabulary_size, order=3):
        self.vocabulary_size = vocabulary_size
        of_length = {
            n: collections.Counter(
                tuple(shard[i : i + n]) for shard in shards for i in range(len(shard) - n + 1)
            )
            for n in range(1, order + 1)
        }
        self.counts = {order: of_length[order]}
        for n in range(1, order):  # after how many different tokens
            self.counts[n] = collections.Counter(ngram[1:] for ngram in of_length[n + 1])
        self.discounts = {n: self.find_discounts(c.values()) for n, c in self.counts.items()}

    @staticmethod
    def find_discounts(counts):
        n1, n2, n3, n4 = (sum(count == k for count in counts) for k in (1, 2, 3, 4))
        if 0 in (n1, n2, n3, n4):
            return 0.5, 1.0, 1.5
        y = n1 / (n1 + 2 * n2)
        found = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
        return found if min(found) > 0 else (0.5, 1.0, 1.5)

    def probability(self, context, word):
        counts = self.counts[len(context) + 1]
        discounts = self.discounts[len(context) + 1]
        lower = self.probability(context[1:], word) if context else 1.0 / self.vocabulary_size
        followers = {ngram: count for ngram, count in counts.items() if ngram[:-1] == context}
        if not followers:
            return lower
        total = sum(followers.values())
        freed = sum(discounts[min(count, 3) - 1] for count in followers.values())
        count = followers.get((*context, word), 0)
        share = count - discounts[min(count, 3) - 1] if count else 0.0
        return share / total + freed / total * lower


def all_contexts(length):
    return list(itertools.product(range(VOCABULARY), repeat=length))


@pytest.mark.parametrize("lengths", [(400, 150), (30, 1, 0, 2, 3), (2,), (1,), (0,)])
def test_probabilities_are_the_plain_implementations(lengths):
    split = make_split("train", *lengths)
    model = KneserNey(split, VOCABULARY)
    plain = PlainKneserNey([shard.tolist() for shard in split.shards], VOCABULARY)
    for n, level in enumerate(model.levels, 1):
        np.testing.assert_allclose(level.discounts, plain.discounts[n], rtol=1e-12)
    for length in range(3):
        for context in all_contexts(length):
            found = model.probabilities(
                np.tile(context, (VOCABULARY, 1)).reshape(VOCABULARY, length), range(VOCABULARY)
            )
            expected = [plain.probability(context, word) for word in range(VOCABULARY)]
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_discounts_of_one_corpus_are_estimated_and_of_another_fall_back():
    large = KneserNey(make_split("train", 400, 150), VOCABULARY)
    assert large.levels[2].discounts.tolist() != [0.5, 1.0, 1.5]
    small = KneserNey(make_split("train", 30), VOCABULARY)
    assert small.levels[0].discounts.tolist() == [0.5, 1.0, 1.5]


def test_discounts_by_hand():
    counts = [1] * 10 + [2] * 5 + [3] * 2 + [4] + [7]
    # Y = 10 / (10 + 2 * 5) = 1/2.
    np.testing.assert_allclose(
        estimate_discounts(np.array(counts)), [1 - 0.5, 2 - 1.5 * 2 / 5, 3 - 2 * 1 / 2]
    )


@pytest.mark.parametrize("counts", [[], [1], [2, 2, 3, 4], [1, 2, 4] + [3] * 9])
def test_discounts_that_cannot_be_estimated(counts):
    assert estimate_discounts(np.array(counts, int)).tolist() == [0.5, 1.0, 1.5]


@pytest.mark.parametrize("lengths", [(3000,), (30, 3), (2,), (0,)])
@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_probabilities_sum_to_one_after_every_context(lengths, length):
    model = KneserNey(make_split("train", *lengths), VOCABULARY)
    random = np.random.default_rng(1)
    contexts = all_contexts(length) if length < 3 else random.integers(0, VOCABULARY, (50, length))
    for context in contexts:
        rows = np.array([context] * VOCABULARY).reshape(VOCABULARY, length)
        found = model.probabilities(rows, np.arange(VOCABULARY))
        assert math.fsum(found) == pytest.approx(1.0, abs=1e-14)
        assert min(found) > 0  # the last token of the vocabulary never occurs


def test_a_longer_context_counts_by_its_last_tokens():
    model = KneserNey(make_split("train", 300), VOCABULARY)
    long = model.probabilities([[7, 7, 1, 2]], [3])
    assert long == model.probabilities([[1, 2]], [3]) != model.probabilities([[2]], [3])


def test_unigram_adds_one():
    split = Split("train", (np.array([0, 0, 1], np.uint16), np.array([1, 0], np.uint16)))
    found = Unigram(split, 4).probabilities(None, np.arange(4))
    np.testing.assert_allclose(found, np.array([4, 3, 1, 1]) / 9)


def test_perplexity_is_that_of_the_tokens_that_windows_predict():
    train, validation = make_split("train", 500), make_split("validation", 40, 1, 2, 0, 3, seed=1)
    unigram, trigram = Unigram(train, VOCABULARY), KneserNey(train, VOCABULARY)
    batches = SequentialWindows(validation, 7, 3)
    targets = np.concatenate([tokens[:, 1:][weights == 1] for tokens, weights in batches])
    assert len(targets) == 39 + 1 + 2
    expected = np.exp(-np.mean(np.log(unigram.probabilities(None, targets))))
    assert ngram_perplexity(unigram, validation) == pytest.approx(expected)
    logarithms = [
        np.log(trigram.probabilities([shard[max(0, i - 2) : i]], shard[i : i + 1]))
        for shard in validation.shards
        for i in range(1, len(shard))
    ]
    assert len(logarithms) == len(targets)
    assert ngram_perplexity(trigram, validation) == pytest.approx(np.exp(-np.mean(logarithms)))
    assert (
        ngram_perplexity(trigram, validation) < ngram_perplexity(unigram, validation) < VOCABULARY
    )


def test_tokens_of_a_large_vocabulary_are_told_apart():
    size = 2_600_000
    shard = np.array([size - 1, size - 2, size - 1, size - 2, size - 3], np.uint32)
    model = KneserNey(Split("train", (shard,)), size)
    plain = PlainKneserNey([shard.tolist()], size)
    context, words = (size - 1, size - 2), [size - 1, size - 2, size - 3, 0]
    found = model.probabilities([context] * 4, words)
    np.testing.assert_allclose(found, [plain.probability(context, word) for word in words])
    with pytest.raises(ValueError, match="2642245 tokens.*2642246"):
        KneserNey(Split("train", (shard,)), 2_642_246)


def test_the_program(tmp_path, capsys):
    train, validation = make_split("train", 500, 60), make_split("validation", 40)
    folder = write_corpus(tmp_path / "c", train=train.shards, validation=validation.shards)
    output = tmp_path / "scores" / "ngrams.json"
    assert ngrams(["--corpus", str(folder), "--output", str(output)]) == 0
    scores = json.loads(output.read_text())
    assert scores["corpus_fingerprint"] == Corpus(folder).fingerprint
    assert scores["unigram_perplexity"] == ngram_perplexity(Unigram(train, VOCABULARY), validation)
    assert scores["trigram_perplexity"] == ngram_perplexity(
        KneserNey(train, VOCABULARY), validation
    )
    assert [len(discounts) for discounts in scores["discounts"]] == [3, 3, 3]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        f"Unigram, add-one: validation perplexity {scores['unigram_perplexity']:.2f}"
    )
    assert lines[1].endswith(f"{scores['trigram_perplexity']:.2f}")


def test_the_first_tokens_are_those_that_a_run_looks_at(tmp_path):
    """The windows of the first batches, over two shards."""
    train, validation = make_split("train", 500), make_split("validation", 40, 50)
    corpus = Corpus(write_corpus(tmp_path / "c", train=train.shards, validation=validation.shards))
    for batches in (1, 3, 4, 7, 99):
        windows = itertools.islice(SequentialWindows(validation, 8, 2), batches)
        predicted = [
            (window[i], window[i + 1])
            for tokens, weights in windows
            for window, weight in zip(tokens, weights)
            for i in np.flatnonzero(weight)
        ]
        tokens = SequentialWindows(validation, 8, 2).count_tokens(batches)
        assert tokens == len(predicted)
        scores = score_corpus(corpus, tokens)
        assert scores["validation_tokens"] == tokens
        contexts, words = (np.array(column) for column in zip(*predicted))
        unigram = Unigram(train, VOCABULARY).probabilities(contexts[:, None], words)
        expected = np.exp(-np.mean(np.log(unigram)))
        assert scores["unigram_perplexity"] == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ValueError, match="tokens.*0"):
        score_corpus(corpus, 0)


def test_errors_of_the_program_are_one_line(tmp_path, capsys):
    def error(folder):
        assert ngrams(["--corpus", str(folder)]) == 1
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.count("\n") == 1
        return captured.err

    assert error(tmp_path / "none").startswith(f"error: {tmp_path / 'none'} is not a corpus")
    folder = write_corpus(tmp_path / "a", train=[[1, 2, 3]])
    assert "has no split 'validation'; it has ['train']" in error(folder)
    folder = write_corpus(tmp_path / "b", train=[[1, 2, 3]], validation=[[1], [2]])
    assert "The split 'validation' has no token that follows another." in error(folder)

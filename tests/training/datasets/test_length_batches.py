"""Batches of examples of similar length: their order and their content."""

import numpy as np
import pytest
import scipy.stats

from gpt1_keras import GPT1MultipleChoicePreprocessor, GPT1TextClassifierPreprocessor
from gpt1_keras.examples import Examples
from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.length_batches import batch_order, count_tokens
from training.datasets.paper_datasets import DATASETS


def test_each_epoch_has_every_example_once_in_batches_of_like_length():
    lengths = np.random.default_rng(0).integers(3, 100, 5000)
    order = batch_order(lengths, 32, seed=1, epoch=0)
    assert sorted(np.concatenate(order)) == list(range(5000))
    assert len(order) == -(-5000 // 32)
    spread = np.mean([np.ptp(lengths[batch]) for batch in order])
    assert spread < 5  # a random batch spreads over some 90

    again = batch_order(lengths, 32, seed=1, epoch=0)
    assert all(np.array_equal(a, b) for a, b in zip(order, again, strict=True))
    other = batch_order(lengths, 32, seed=1, epoch=1)
    assert not np.array_equal(np.concatenate(order), np.concatenate(other))


def test_an_epoch_is_not_sorted_by_length():
    """Nor is one whose batches are all sorted together, as of a small data set."""
    lengths = np.random.default_rng(0).integers(3, 100, 2000)
    correlations = []
    for epoch in range(20):
        means = [lengths[batch].mean() for batch in batch_order(lengths, 32, 0, epoch)]
        correlations.append(np.corrcoef(np.arange(len(means)), means)[0, 1])
    assert abs(np.mean(correlations)) < 0.1  # by chance, some 0.03
    assert max(np.abs(correlations)) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sst2", "rte"])
def test_an_epoch_of_a_real_data_set_is_not_sorted_by_length(name, tfds_dir):
    """Of one of many pools, and of one that is smaller than a pool."""
    examples = load_examples(DATASETS[name], "train", DataOptions(tfds_dir))
    columns = list(examples.texts.values())
    words = np.array([sum(text.count(b" ") for text in row) for row in zip(*columns)])
    for seed in range(3):
        order = batch_order(words, 32, seed, epoch=0)
        means = [words[batch].mean() for batch in order]
        steps = np.arange(len(means))
        # By chance 95 % are within 2 / sqrt(batches): 0.04 of SST-2's 2,105, 0.23 of RTE's 78.
        assert abs(scipy.stats.spearmanr(steps, means).statistic) < 4 / len(means) ** 0.5
        # And no stretch of the epoch is of the short or of the long texts alone.
        quarters = [np.mean(part) for part in np.array_split(means, 4)]
        assert np.ptp(quarters) < 0.4 * np.mean(means)
        assert np.mean([np.ptp(words[batch]) for batch in order]) < 0.5 * np.ptp(words)


def test_tokens_are_counted_as_the_model_reads_them(tfds_dir, tiny_tokenizer):
    examples = load_examples(DATASETS["rte"], "validation", DataOptions(tfds_dir)).sample(10, 0)
    preprocessor = GPT1TextClassifierPreprocessor(tiny_tokenizer, 512, ("premise", "hypothesis"))
    expected = [
        len(tiny_tokenizer(premise)[:254]) + len(tiny_tokenizer(hypothesis)[:254]) + 3
        for premise, hypothesis in zip(*examples.texts.values())
    ]
    counts, is_cut = count_tokens(examples, preprocessor)
    assert counts.tolist() == expected and not is_cut.any()
    race = load_examples(DATASETS["race_middle"], "validation", DataOptions(tfds_dir)).sample(6, 0)
    preprocessor = GPT1MultipleChoicePreprocessor(tiny_tokenizer, 4096)
    context, question, choices = (race.texts[name][0] for name in preprocessor.fields)
    shared = 1 + len(tiny_tokenizer(context)) + len(tiny_tokenizer(question))
    answers = sum(2 + len(tiny_tokenizer(choice)) for choice in choices)
    counts, _ = count_tokens(race, preprocessor)
    assert counts[0] == shared + answers


def test_which_examples_are_cut(tiny_tokenizer):
    """Not one that just fits."""
    texts = ["a b", "a b c", "a b c d", "a b c d " * 9]
    examples = Examples({"text": texts})
    counts, is_cut = count_tokens(examples, GPT1TextClassifierPreprocessor(tiny_tokenizer, 5))
    assert counts.tolist() == [4, 5, 5, 5] and is_cut.tolist() == [False, False, True, True]
    assert [len(tiny_tokenizer(text)) for text in texts[:3]] == [2, 3, 4]

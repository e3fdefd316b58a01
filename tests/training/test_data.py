"""Examples from real data sets, and the order of their batches."""

import numpy as np
import pytest

from gpt1_keras.tasks.text_classifier_preprocessor import GPT1TextClassifierPreprocessor
from training.data import batch_order, count_tokens, load_examples, make_batches
from training.tasks import TASKS, Task, find_task


def test_sst2_has_its_published_sizes(tfds_dir):
    train, class_names = load_examples(TASKS["sst2"], "train", tfds_dir)
    validation, _ = load_examples(TASKS["sst2"], "validation", tfds_dir)
    assert (len(train), len(validation)) == (67349, 872)
    assert class_names == ["negative", "positive"]
    assert (
        validation.texts["text"][0]
        == b"a valueless kiddie paean to pro basketball underwritten by the nba . "
    )
    assert np.mean(validation.labels) == pytest.approx(444 / 872)


def test_pairs_and_unlabelled_examples(tfds_dir):
    examples, class_names = load_examples(TASKS["snli"], "validation", tfds_dir)
    assert set(examples.texts) == {"premise", "hypothesis"}
    assert class_names == ["entailment", "neutral", "contradiction"]
    assert len(examples) == 9842  # of 10,000, 158 have no label
    assert examples.labels.min() == 0


def test_limit_draws_the_same_examples_for_the_same_seed(tfds_dir):
    def draw(seed):
        return load_examples(TASKS["rte"], "train", tfds_dir, limit=50, seed=seed)[0]

    assert np.array_equal(draw(0).labels, draw(0).labels)
    assert list(draw(0).texts["premise"]) != list(draw(1).texts["premise"])


def test_missing_data_set_says_how_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"glue/sst2 is not in .*--data-dir.*--download"):
        load_examples(TASKS["sst2"], "train", str(tmp_path))


def test_missing_split_names_those_there_are(tfds_dir):
    with pytest.raises(ValueError, match=r"no split 'train'; it has \['test', 'validation'\]"):
        load_examples(TASKS["snli"], "train", tfds_dir)


def test_unknown_task_names_those_there_are():
    with pytest.raises(ValueError, match=r"Unknown task 'sst3'; expected one of \['cola', "):
        find_task("sst3")


def test_every_task_has_a_metric_and_one_or_two_fields():
    from training.metrics import METRICS

    for task in TASKS.values():
        assert isinstance(task, Task)
        assert task.metric in METRICS
        assert len(task.fields) in (1, 2)


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


def test_batches_hold_the_examples_that_the_order_names(tfds_dir, tiny_tokenizer):
    examples, _ = load_examples(TASKS["rte"], "validation", tfds_dir, limit=10)
    (texts, labels), _ = list(make_batches(examples, [np.array([3, 1]), np.array([7])]))
    assert list(texts["premise"].numpy()) == list(examples.texts["premise"][[3, 1]])
    assert list(labels.numpy()) == list(examples.labels[[3, 1]])

    preprocessor = GPT1TextClassifierPreprocessor(tiny_tokenizer, 512, ("premise", "hypothesis"))
    expected = [
        len(tiny_tokenizer(premise)[:254]) + len(tiny_tokenizer(hypothesis)[:254]) + 3
        for premise, hypothesis in zip(*examples.texts.values())
    ]
    assert count_tokens(examples, preprocessor).tolist() == expected

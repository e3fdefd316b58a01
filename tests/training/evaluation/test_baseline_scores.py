"""A model's score beside the trivial baselines, and data that are no use to them."""

import numpy as np
import pytest

from gpt1_keras.examples import Examples
from training.datasets.paper_datasets import DATASETS
from training.evaluation import baselines
from training.evaluation.baselines import MAJORITY, OVERLAP, TFIDF, describe_beside, score_baselines

BASELINES = {"metric": "accuracy", "scores": {MAJORITY: 0.5, TFIDF: 0.85}, "train_examples": 240}


def examples(labels, class_names=("no", "yes"), **texts):
    columns = {}
    for name, values in texts.items():
        columns[name] = np.empty(len(values), object)
        columns[name][:] = values
    return Examples(columns, np.array(labels), np.arange(len(labels)), list(class_names))


def test_a_model_that_does_not_beat_them_says_so_first():
    for score in (0.479, 0.85):
        lines = describe_beside(score, BASELINES).splitlines()
        assert lines[0] == (
            f"The model does not beat a simple baseline: accuracy {score:.4f}, and {TFIDF} has "
            "0.8500."
        )
        assert "--epochs" in lines[1] and "hf://openai-community/openai-gpt" in lines[1]
        assert len(lines) == 5


def test_a_model_that_does():
    lines = describe_beside(0.91, BASELINES).splitlines()
    assert [line.split() for line in lines] == [
        ["accuracy", "this", "model", "0.9100"],
        ["accuracy", *TFIDF.split(), "0.8500"],
        ["accuracy", "majority", "0.5000"],
    ]


def test_scores():
    train = examples([1, 0] * 20, text=[b"good", b"bad"] * 20)
    test = examples([1, 0, 1, 1], text=[b"good", b"bad", b"good one", b"bad"])
    found = score_baselines(DATASETS["sst2"], train, test)
    assert found == {
        "metric": "accuracy", "scores": {MAJORITY: 0.25, TFIDF: 0.75}, "train_examples": 40
    }  # fmt: skip


@pytest.mark.parametrize("train", [
    examples([1, 1], text1=[b"a", b"b"], text2=[b"a", b"c"]),
    examples([1, 0, 1], text1=[b"!", b"?", b""], text2=[b"...", b"", b"-"]),
])  # fmt: skip
def test_labels_all_alike_and_texts_without_words(train):
    """Scikit-learn refuses both; the more frequent label is all that they teach."""
    found = score_baselines(DATASETS["mrpc"], train, train)["scores"]
    assert found[MAJORITY] == found[TFIDF] == found[OVERLAP]


def test_choices_that_are_all_right():
    choices = [np.array([b"a"], object)] * 3
    train = examples([0, 0, 0], context=[b"a"] * 3, question=[b"b"] * 3, choices=choices)
    assert score_baselines(DATASETS["race_middle"], train, train)["scores"][TFIDF] == 1


@pytest.mark.parametrize(("names", "expected"), [(("no", "yes"), 50), ("abcd", 25)])
def test_large_data_are_sampled(names, expected, monkeypatch):
    """The fewer, the more classes there are: a linear model has weights for each."""
    monkeypatch.setattr(baselines, "_MOST_CHARACTERS", 200)
    train = examples([1, 0] * 50, names, text=[b"good", b"bad!"] * 50)
    assert score_baselines(DATASETS["sst2"], train, train)["train_examples"] == expected

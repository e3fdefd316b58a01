"""Trivial baselines, against scikit-learn and examples with known labels."""

import json

import numpy as np
import pytest
import sklearn.dummy
import sklearn.feature_extraction.text as text
import sklearn.linear_model
import sklearn.pipeline

from gpt1_keras.examples import Examples
from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import DATASETS
from training.evaluation.baselines import MAJORITY, OVERLAP, TFIDF, baselines_of
from training.paper.commands import report
from training.paper.grids import score_baselines


def examples(texts, labels, class_names=None):
    columns = {}
    for name, values in texts.items():
        columns[name] = np.empty(len(values), object)
        columns[name][:] = values
    return Examples(columns, np.array(labels), np.arange(len(labels)), class_names)


def predict(name, baseline, train, test=None):
    return baselines_of(DATASETS[name])[baseline](DATASETS[name], train, test or train)


def test_single_texts_as_scikit_learn_s_own_pipelines(tfds_dir):
    train = load_examples(DATASETS["cola"], "train", DataOptions(tfds_dir)).sample(800, 0)
    test = load_examples(DATASETS["cola"], "validation", DataOptions(tfds_dir)).sample(300, 0)
    texts = [[sentence.decode() for sentence in part.texts["text"]] for part in (train, test)]
    dummy = sklearn.dummy.DummyClassifier().fit(texts[0], train.labels)
    np.testing.assert_array_equal(predict("cola", MAJORITY, train, test), dummy.predict(texts[1]))
    model = sklearn.pipeline.make_pipeline(
        text.TfidfVectorizer(token_pattern=r"\w+"),
        sklearn.linear_model.LogisticRegression(max_iter=1000),
    )
    expected = model.fit(texts[0], train.labels).predict(texts[1])
    assert np.mean(predict("cola", TFIDF, train, test) == expected) > 0.99
    assert OVERLAP not in baselines_of(DATASETS["cola"])


def test_scores_by_overlap():
    pairs = {"text1": [b"A b c", b"a b", b"", b"One."], "text2": [b"b C d", b"x", b"", b"one"]}
    train = examples(pairs, np.array([1.0, 2.0, 3.0, 4.0], np.float32))
    assert predict("stsb", OVERLAP, train).tolist() == [2.5, 0.0, 0.0, 5.0]
    assert predict("stsb", MAJORITY, train).tolist() == [2.5] * 4
    assert predict("stsb", TFIDF, train).shape == (4,)


def test_classes_by_overlap():
    """Pairs that share words have class 1."""
    pairs = {"text1": [b"a b c d"] * 40, "text2": [b"a b c", b"x y z"] * 20}
    train = examples(pairs, [1, 0] * 20, ["no", "yes"])
    assert predict("mrpc", OVERLAP, train).tolist() == [1, 0] * 20
    assert predict("mrpc", TFIDF, train).tolist() == [1, 0] * 20


def test_choices():
    """Any number of them; the right one is that of the passage, and has a word of its own."""
    choices = [np.array(words.split(b"|"), object) for words in (b"x|good a", b"good b|y|z")]
    texts = {"context": [b"a b", b"a b"], "question": [b"a ?", b"b ?"], "choices": choices}
    train = examples({name: values * 5 for name, values in texts.items()}, [1, 0] * 5)
    assert predict("race_middle", OVERLAP, train).tolist() == [1, 0] * 5
    assert predict("race_middle", TFIDF, train).tolist() == [1, 0] * 5
    assert predict("race_middle", MAJORITY, train).tolist() == [0] * 10


@pytest.mark.slow
def test_the_files_and_the_tables(tfds_dir, tmp_path):
    for name in ("rte", "cola"):
        score_baselines(name, tmp_path / "runs", 99, 2, DataOptions(tfds_dir))
    results = [json.loads(path.read_text()) for path in tmp_path.rglob("result.json")]
    assert len(results) == 2 * (3 + 2)
    labels = load_examples(DATASETS["rte"], "validation", DataOptions(tfds_dir)).labels
    for result in results:
        assert result["train_examples"] == result["limit_examples"] == 99
        if (result["task"], result["baseline"]) == ("rte", MAJORITY):
            assert result["score"] in (np.mean(labels == 0), np.mean(labels == 1))

    assert report(["--runs", str(tmp_path / "runs"), "--output", str(tmp_path / "out")]) == 0
    table = (tmp_path / "out" / "tables.md").read_text()
    dash = "\N{EN DASH}"
    assert f"| baseline: majority | 0.0 | {dash} | {dash} |" in table  # CoLA, in table 4
    overlap = [line for line in table.splitlines() if line.startswith("| baseline: word overlap")]
    assert f"| {dash} | {dash} |" in overlap[-1]  # CoLA has none, in table 5

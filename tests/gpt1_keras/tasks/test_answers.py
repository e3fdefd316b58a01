"""`classify` returns names and calibrated probabilities, in the form of what it is given."""

import pathlib

import keras
import numpy as np
import pandas as pd
import pytest
import scipy.special
import tensorflow as tf

from gpt1_keras.presets import load_task
from tests.helpers.eager import eagerly

SAVED = pathlib.Path(__file__).parents[1] / "presets" / "saved_models"
TEXTS = ["a good film", "bad", "the staff were kind and so on"]
CONTEXTS, QUESTIONS = ["The sun shone.", "Rain."], ["What?", "Why?"]
CHOICES = [["It rained.", "It was fine.", "It snowed."], ["Yes.", "No."]]


@pytest.fixture(scope="module", autouse=True)
def eager():
    with eagerly():
        yield


@pytest.fixture(scope="module")
def chooser():
    return load_task(SAVED / "chooser")


@pytest.fixture(scope="module")
def answers(calibrated_classifier):
    return calibrated_classifier.classify(TEXTS)


@pytest.mark.slow
def test_calibrated_probabilities_by_name(calibrated_classifier, answers):
    logits = np.log(calibrated_classifier.predict(TEXTS, verbose=0))  # it has a softmax
    expected = scipy.special.softmax(logits / 0.1, axis=1)
    found = [list(answer["scores"].values()) for answer in answers]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for answer, row in zip(answers, expected):
        assert list(answer) == ["label", "score", "scores", "is_sure"]
        assert list(answer["scores"]) == calibrated_classifier.class_names == ["bad", "good"]
        assert answer["label"] == ["bad", "good"][row.argmax()]
        assert answer["score"] == max(answer["scores"].values())
        assert answer["is_sure"] is bool(row.max() >= 0.6)
    assert {answer["is_sure"] for answer in answers} == {True, False}


def labels_and_scores(answers):
    return [(answer["label"], pytest.approx(answer["score"], abs=1e-6)) for answer in answers]


@pytest.mark.parametrize(
    "x",
    [
        np.array(TEXTS),
        {"text": TEXTS},
        (TEXTS,),
        tf.data.Dataset.from_tensor_slices((TEXTS, [0, 1, 1])).batch(2),
        iter([TEXTS[:1], TEXTS[1:]]),
    ],
    ids=["array", "dict", "tuple", "dataset", "generator"],
)
def test_kinds_of_data(calibrated_classifier, answers, x):
    assert labels_and_scores(calibrated_classifier.classify(x)) == labels_and_scores(answers)


def test_one_text_has_one_answer(calibrated_classifier, answers):
    assert labels_and_scores([calibrated_classifier.classify(TEXTS[0])]) == labels_and_scores(
        answers[:1]
    )


@pytest.mark.slow
def test_a_table_keeps_its_index(calibrated_classifier, answers):
    table = pd.DataFrame({"other": [1, 2, 3], "text": TEXTS}, index=["x", "y", "z"])
    found = calibrated_classifier.classify(table)
    assert list(found) == ["label", "score", "score_bad", "score_good", "is_sure"]
    assert list(found.index) == ["x", "y", "z"]
    assert list(zip(found.label, found.score)) == labels_and_scores(answers)
    np.testing.assert_allclose(found.score_bad + found.score_good, 1.0, atol=1e-6)
    pd.testing.assert_frame_equal(calibrated_classifier.classify(table["text"]), found)


def test_nothing_to_answer(calibrated_classifier):
    assert calibrated_classifier.classify([]) == []
    table = calibrated_classifier.classify(pd.DataFrame({"text": []}))
    assert list(table) == ["label", "score", "score_bad", "score_good", "is_sure"]
    assert len(table) == 0


@pytest.mark.slow
def test_choices(chooser):
    answers = chooser.classify((CONTEXTS, QUESTIONS, CHOICES))
    logits = chooser.predict((CONTEXTS, QUESTIONS, CHOICES), verbose=0)
    expected = scipy.special.softmax(logits / chooser.calibration.temperature, axis=1)
    for answer, row, choices in zip(answers, expected, CHOICES):
        assert list(answer) == ["label", "choice", "score", "scores"]
        assert answer["label"] == choices[answer["choice"]]
        assert answer["choice"] == row.argmax()
        assert len(answer["scores"]) == len(choices)
        np.testing.assert_allclose(answer["scores"], row[: len(choices)], atol=1e-6)
    one = chooser.classify((CONTEXTS[0], QUESTIONS[0], CHOICES[0]))
    assert labels_and_scores([one]) == labels_and_scores(answers[:1])
    table = pd.DataFrame({"context": CONTEXTS, "question": QUESTIONS, "choices": CHOICES})
    found = chooser.classify(table)
    assert list(found.choice) == [answer["choice"] for answer in answers]
    assert [len(scores) for scores in found.scores] == [3, 2]


@pytest.mark.slow
def test_scores():
    similarity = keras.models.load_model(SAVED / "similarity.keras")
    pairs = (["a good film", "bad"], ["a good film", "kind staff"])
    expected = similarity.predict(pairs, verbose=0)
    assert similarity.classify(pairs) == [{"score": pytest.approx(each)} for each in expected]
    assert list(similarity.classify(pd.DataFrame(dict(zip(["text1", "text2"], pairs))))) == [
        "score"
    ]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (["a", None], "Received: None at index 1"),
        (pd.Series(["a", None]), "at index 1"),
        (pd.DataFrame({"Text": ["a"]}), r"columns \('text',\). Received: \['Text'\]"),
        (3, "Received: 3"),
        (tf.data.Dataset.from_tensor_slices(TEXTS), "dataset of batches"),
        ({"sentence": TEXTS}, "Expected the fields"),
    ],
)
def test_refused(calibrated_classifier, x, message):
    with pytest.raises(ValueError, match=message):
        calibrated_classifier.classify(x)


def test_tasks_that_do_not_classify(calibrated_classifier):
    lm = keras.models.load_model(SAVED / "lm.keras")
    with pytest.raises(ValueError, match="a GPT1CausalLM"):
        lm.classify(TEXTS)
    of_ids = type(calibrated_classifier)(calibrated_classifier.backbone, 2)
    with pytest.raises(ValueError, match="preprocessor=None"):
        of_ids.classify(TEXTS)

"""`classify` returns names and calibrated probabilities, in the form of what it is given."""

import pathlib

import keras
import numpy as np
import pandas as pd
import pytest
import scipy.special
import tensorflow as tf

import gpt1_keras
from gpt1_keras.examples import Examples, as_column
from gpt1_keras.presets import load_task
from gpt1_keras.tasks.batches import blank_examples
from serving.export.task_answers import class_or_score_answers
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
        assert list(answer) == ["label", "score", "scores", "is_sure", "blank"]
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
        Examples({"text": as_column([text.encode() for text in TEXTS])}, np.array([0, 1, -1])),
        TEXTS[0],
    ],
    ids=["array", "dict", "tuple", "dataset", "generator", "examples", "one"],
)
def test_kinds_of_data(calibrated_classifier, answers, x):
    found = calibrated_classifier.classify(x)
    found, expected = ([found], answers[:1]) if isinstance(x, str) else (found, answers)
    assert labels_and_scores(found) == labels_and_scores(expected)


@pytest.mark.slow
def test_a_table_keeps_its_index(calibrated_classifier, answers):
    table = pd.DataFrame({"other": [1, 2, 3], "text": TEXTS}, index=["x", "y", "z"])
    found = calibrated_classifier.classify(table)
    assert list(found) == ["label", "score", "score_bad", "score_good", "is_sure", "blank"]
    assert list(found.index) == ["x", "y", "z"]
    assert list(zip(found.label, found.score)) == labels_and_scores(answers)
    np.testing.assert_allclose(found.score_bad + found.score_good, 1.0, atol=1e-6)
    pd.testing.assert_frame_equal(calibrated_classifier.classify(table["text"]), found)


def test_nothing_to_answer(calibrated_classifier):
    assert calibrated_classifier.classify([]) == []
    table = calibrated_classifier.classify(pd.DataFrame({"text": []}))
    assert list(table) == ["label", "score", "score_bad", "score_good", "is_sure", "blank"]
    assert len(table) == 0


@pytest.mark.slow
def test_choices(chooser):
    answers = chooser.classify((CONTEXTS, QUESTIONS, CHOICES))
    logits = chooser.predict((CONTEXTS, QUESTIONS, CHOICES), verbose=0)
    expected = scipy.special.softmax(logits / chooser.calibration.temperature, axis=1)
    for answer, row, choices in zip(answers, expected, CHOICES):
        assert list(answer) == ["label", "choice", "score", "scores", "blank"]
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
    assert similarity.classify(pairs) == [
        {"score": pytest.approx(each), "blank": False} for each in expected
    ]
    table = pd.DataFrame(dict(zip(["text1", "text2"], pairs)))
    assert list(similarity.classify(table)) == ["score", "blank"]


# === Several labels of a text ===


@pytest.fixture(scope="module")
def make_labeller(calibrated_classifier):
    def make(activation="sigmoid"):
        task = calibrated_classifier
        keras.utils.set_random_seed(0)
        labeller = type(task)(
            task.backbone,
            class_names=["short", "kind", "dull"],
            activation=activation,
            preprocessor=task.preprocessor,
        )
        labeller.head.bias.assign([2.0, 0.0, -2.0])
        labeller.head.kernel.assign(labeller.head.kernel * 50.0)
        return labeller

    return make


def test_all_labels_above_a_half(make_labeller):
    labeller = make_labeller()
    answers, outputs = labeller.classify(TEXTS), labeller.predict(TEXTS, verbose=0)
    for answer, row in zip(answers, outputs, strict=True):
        assert list(answer) == ["labels", "scores", "blank"]
        assert answer["labels"] == list(np.array(labeller.class_names)[row > 0.5])
        np.testing.assert_allclose(list(answer["scores"].values()), row, atol=1e-6)
    assert len({len(answer["labels"]) for answer in answers}) > 1
    table = labeller.classify(pd.Series(TEXTS))
    assert list(table) == ["labels", "score_short", "score_kind", "score_dull", "blank"]
    assert list(table.labels) == [answer["labels"] for answer in answers]
    exported = class_or_score_answers(labeller).outputs(tf.constant(outputs))
    for row, answer in zip(exported["labels"].numpy(), answers):
        assert [name.decode() for name in row if name] == answer["labels"]


@pytest.mark.parametrize("loss", [keras.losses.BinaryCrossentropy(from_logits=True), "bce"])
def test_logits_of_a_binary_loss_are_not_a_softmax_s(make_labeller, loss):
    labeller = make_labeller(activation=None)
    labeller.compile("sgd", loss if loss != "bce" else keras.losses.binary_crossentropy)
    with pytest.raises(ValueError, match="activation='sigmoid'"):
        labeller.classify(TEXTS)


# === Texts without a token ===

BLANK = ["", " \t\n", "\u200b\u00a0", "\x00\x07", "\u0301"]


def blank(preprocessor, x):
    texts, _ = preprocessor.read(x)
    return blank_examples(preprocessor, texts)


def test_blank_texts(calibrated_classifier, chooser):
    texts = ["a film", *BLANK, "é", "!", "\u6f22"]
    preprocessor = calibrated_classifier.preprocessor
    expected = [not len(each) for each in preprocessor.tokenizer(texts)]
    assert expected == [False] + [True] * len(BLANK) + [False] * 3
    assert [each["blank"] for each in calibrated_classifier.classify(texts)] == expected
    for x in (np.array(texts), tf.constant(texts), pd.Series(texts)):
        assert blank(preprocessor, x) == expected
    for x in ("", [""], [b"\xff\xfe"], b" "):
        assert blank(preprocessor, x) == [True]
    pairs = gpt1_keras.GPT1TextSimilarityPreprocessor(preprocessor.tokenizer, 16)
    assert blank(pairs, (["", "a", "a"], ["a", " ", "b"])) == [True, True, False]
    choices = [["Yes.", "No."], ["Yes.", "No."], ["", "No."]]
    examples = (["", "", "a"], ["Why?", " ", "Why?"], choices)
    assert blank(chooser.preprocessor, examples) == [False, True, True]
    lm = gpt1_keras.GPT1CausalLMPreprocessor(preprocessor.tokenizer)
    assert blank(lm, ["a", ""]) == [False, True]


@pytest.mark.parametrize("call", ["fit", "evaluate"])
def test_a_warning_of_blank_texts(calibrated_classifier, call, recwarn, monkeypatch):
    monkeypatch.setattr(keras.Model, call, lambda *args, **kwargs: None)
    run = getattr(calibrated_classifier, call)
    for texts, expected in (
        (["a", " ", "b", ""], "2 of 4 examples, first at index 1"),
        (np.array(["a", "b", ""]), "1 of 3 examples, first at index 2"),
    ):
        run(texts, [0, 1, 0, 1][: len(texts)])
        messages = [str(each.message) for each in recwarn if "token" in str(each.message)]
        assert len(messages) == 1 and expected in messages[0]
        recwarn.clear()
    run(TEXTS, [0, 1, 0])
    assert not [each for each in recwarn if "token" in str(each.message)]


# === Refused ===


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (["a", None], "None at index 1"),
        (pd.Series(["a", None]), "at index 1"),
        (pd.DataFrame({"Text": ["a"]}), "Text"),
        (3, "3"),
        (tf.data.Dataset.from_tensor_slices(TEXTS), "batches"),
        ({"sentence": TEXTS}, "fields"),
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

"""Reports on answers, against scikit-learn and pandas, and plots that people can read."""

import json
import re
import types
import xml.etree.ElementTree

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics

from gpt1_keras.examples import Examples
from gpt1_keras.tasks.heads import Calibration
from training.evaluation.answer_report import plot_confusion, plot_report, read_report, write_report
from training.evaluation.predictions import (
    DivergedError,
    predict_outputs,
    predictions_of,
    write_predictions,
)


class Model:
    """Answers by given logits."""

    task_head = types.SimpleNamespace(is_multi_label=False)
    preprocessor = types.SimpleNamespace(fields=["context", "choices"])

    def __init__(self, class_names=None, has_probabilities=True):
        self.class_names = class_names
        self.calibration = Calibration() if has_probabilities else None

    def probabilities(self, outputs):
        exponents = np.exp(outputs)
        return exponents / exponents.sum(axis=1, keepdims=True)


def column(values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


def report(folder, model, examples, outputs):
    """Writes all files, the plots after the others; returns the report."""
    text = write_report(folder, model, examples, outputs)
    write_predictions(folder, examples, predictions_of(outputs))
    assert not list(folder.glob("*.svg"))
    plot_report(folder, examples.class_names)
    return text


@pytest.fixture
def classes(tmp_path):
    """A report on 60 answers of three unequal classes: the examples, the outputs, the folder."""
    random = np.random.default_rng(0)
    labels = random.choice(3, 60, p=[0.7, 0.2, 0.1])
    outputs = random.normal(size=(60, 3)) + 1.5 * np.eye(3)[labels]
    texts = [f'text {number}, "quoted"\nin\rlines: Übung 日本'.encode() for number in range(60)]
    names = ["accuracy", "Rüge", "=1+1"]
    examples = Examples({"text": column(texts)}, labels, np.arange(60) + 7, names)
    return examples, outputs, report(tmp_path, Model(names), examples, outputs), tmp_path


def test_the_report_by_class(classes):
    examples, outputs, text, folder = classes
    answers = outputs.argmax(axis=1)
    expected = sklearn.metrics.classification_report(
        examples.labels, answers, target_names=examples.class_names, digits=3
    )
    assert text == read_report(folder) == expected
    content = json.loads((folder / "report.json").read_text())
    assert content["accuracy"] == np.mean(answers == examples.labels)
    assert content["classes"]["Rüge"]["support"] == np.sum(examples.labels == 1)
    plot = (folder / "confusion.svg").read_text()
    for count in sklearn.metrics.confusion_matrix(examples.labels, answers).flat:
        assert f">{count}<" in plot or not count


def test_what_is_wrong_as_pandas_reads_it(classes):
    examples, outputs, _, folder = classes
    wrong = pd.read_csv(folder / "errors.csv")
    assert list(wrong) == ["number", "text", "label", "prediction", "score"]
    answers = outputs.argmax(axis=1)
    expected = examples.indices[answers != examples.labels]
    assert sorted(wrong.number) == expected.tolist()
    assert wrong.score.is_monotonic_decreasing
    confidence = Model().probabilities(outputs).max(axis=1)
    for row in wrong.itertuples():
        position = row.number - 7
        assert row.text == examples.texts["text"][position].decode()
        assert row.score == pytest.approx(confidence[position], abs=1e-4)
        named = [examples.class_names[each[position]] for each in (examples.labels, answers)]
        assert [row.label.lstrip("'"), row.prediction.lstrip("'")] == named


def test_spreadsheets_read_it_and_compute_nothing(tmp_path):
    texts = [b"=1+1", b"+1", b"-1", b"@SUM(A1)", b"\tx", b"a=1"]
    examples = Examples({"text": column(texts)}, np.zeros(6, int), np.arange(6), ["no", "yes"])
    write_report(tmp_path, Model(["no", "yes"]), examples, np.tile([0.0, 1.0], (6, 1)))
    content = (tmp_path / "errors.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbfnumber,text,")
    written = pd.read_csv(tmp_path / "errors.csv").text
    assert list(written) == ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\tx", "a=1"]


@pytest.mark.parametrize(
    ("outputs", "is_refused"),
    [
        ([[0.0, 1.0], [np.nan, 1.0]], True),
        ([[0.0, 1.0], [np.inf, 1.0]], True),
        ([[0.0, 1.0], [-np.inf, 1.0]], False),  # a choice that is not there
        ([np.inf, 1.0], True),
        ([-np.inf, 1.0], True),
        ([0.0, 1.0], False),
    ],
)
def test_answers_that_are_no_numbers_are_refused(outputs, is_refused):
    """JSON does not have them, and no metric."""
    examples = Examples({"text": column([b"a", b"b"])}, np.zeros(2), np.arange(2))
    model, order = Model(), [np.array([1]), np.array([0])]
    model.predict = lambda examples, verbose: np.array(outputs)
    if is_refused:
        with pytest.raises(DivergedError, match="lower learning rate"):
            predict_outputs(model, examples, order)
    else:
        assert predict_outputs(model, examples, order).tolist() == outputs


def test_choices(tmp_path):
    choices = [column(words) for words in ([b"a", b"b"], [b"c", b"-d", b"e"])]
    texts = {"context": column([b"one", b"two"]), "choices": column(choices)}
    examples = Examples(texts, np.array([0, 1]), np.arange(2))
    outputs = np.array([[1.0, 0.0, -np.inf], [0.0, 1.0, 2.0]])
    assert report(tmp_path, Model(), examples, outputs) == "1 of 2 are right\n"
    wrong = pd.read_csv(tmp_path / "errors.csv")
    assert wrong.drop(columns="score").values.tolist() == [[1, "two", "c | '-d | e", "'-d", "e"]]
    assert not (tmp_path / "confusion.svg").exists() and (tmp_path / "reliability.svg").exists()


def test_scores(tmp_path):
    labels = np.array([0.0, 2.5, 5.0], np.float32)
    pairs = {"text1": column([b"a", b"b", b"c"]), "text2": column([b"d", b"e", b"f"])}
    examples = Examples(pairs, labels, np.arange(3))
    text = report(
        tmp_path, Model(has_probabilities=False), examples, np.array([0.5, 2.5, 3.0], np.float32)
    )
    assert text.splitlines()[0] == "mean absolute error: 0.8333"
    wrong = pd.read_csv(tmp_path / "errors.csv")
    assert wrong.number.tolist() == [2, 0, 1] and wrong.error.tolist() == [-2.0, 0.5, 0.0]
    assert (tmp_path / "scores.svg").exists() and not (tmp_path / "reliability.svg").exists()


def test_all_answers_right(tmp_path):
    examples = Examples({"text": column([b"a"])}, np.array([1]), np.arange(1), ["n", "y"])
    write_report(tmp_path, Model(["n", "y"]), examples, np.array([[0.0, 1.0]]))
    assert len(pd.read_csv(tmp_path / "errors.csv")) == 0
    assert json.loads((tmp_path / "report.json").read_text())["classes"]["n"]["support"] == 0


def test_class_names_of_any_characters_leave_a_plot_that_opens(tmp_path):
    names = [f"a{character}b" for character in "\x00\x1b\ud800\uffff\n<&$\\$"]
    plot_confusion(np.arange(9), np.arange(9), names, tmp_path / "plot.svg")
    shown = "".join(xml.etree.ElementTree.parse(tmp_path / "plot.svg").getroot().itertext())
    assert shown.count("a\ufffdb") == 8 and shown.count("a<b") == shown.count("a&b") == 2


def test_of_many_classes_the_plot_has_those_with_most_errors(tmp_path):
    names = [f"$class_{number:03d} of a long name" for number in range(40)]
    labels = np.append(np.repeat(np.arange(40), 9), [39, 39, 39])
    answers = np.append(labels[:-3], [38, 38, 38])
    plot_confusion(labels, answers, names, tmp_path / "plot.svg")
    plot = (tmp_path / "plot.svg").read_text()
    shown = set(re.findall(r"\$class_(\d{3})", plot))
    assert len(shown) == 30 and {"038", "039"} <= shown
    assert "the 30 of 40 classes with most errors" in plot
    assert ">3<" in plot

"""Temperatures, errors and thresholds against scikit-learn, SciPy and definitions."""

import types

import numpy as np
import pytest
import scipy.special
import scipy.stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from gpt1_keras.tasks.label_heads import ClassHead
from training.evaluation.calibration import (
    answers_needed,
    calibrate,
    describe,
    find_threshold,
    fit_temperature,
    measure,
    plot_reliability,
)


@pytest.fixture(scope="module")
def model():
    """What `calibrate` asks of a task."""
    head = ClassHead(["a", "b", "c"], None, 0.0)
    return types.SimpleNamespace(class_names=head.class_names, task_head=head)


@pytest.fixture(scope="module")
def examples():
    """Logits 2.5 times as large as those that labels were drawn by."""
    random = np.random.default_rng(0)
    true = random.normal(0.0, 1.5, (2000, 3))
    labels = [random.choice(3, p=row) for row in scipy.special.softmax(true, axis=1)]
    return 2.5 * true, np.array(labels)


class Logits(ClassifierMixin, BaseEstimator):
    """Returns what it is given."""

    def fit(self, x, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, x):
        return x

    def predict(self, x):
        return x.argmax(axis=1)


def test_the_temperature_is_scikit_learn_s(examples):
    logits, labels = examples
    frozen = FrozenEstimator(Logits().fit(logits, labels))
    theirs = CalibratedClassifierCV(frozen, method="temperature").fit(logits, labels)
    temperature = fit_temperature(logits, labels)
    ours = scipy.special.softmax(logits / temperature, axis=1)
    np.testing.assert_allclose(ours, theirs.predict_proba(logits), atol=1e-4)
    assert temperature == pytest.approx(2.5, rel=0.1)


def test_a_report(model, examples, tmp_path):
    report = calibrate(model, *examples)
    assert report.note is None and report.calibration.sure_threshold is None
    before, after = report.before, report.after
    assert before["expected_calibration_error"] > 0.1 > 0.04 > after["expected_calibration_error"]
    assert before["brier_score"] > after["brier_score"]
    assert before["log_loss"] > after["log_loss"]
    assert sum(before["count"]) == sum(after["count"]) == 2000
    assert describe(report.as_json()).startswith("Temperature 2.")
    plot_reliability(report.as_json(), tmp_path / "diagram.svg")
    assert (tmp_path / "diagram.svg").read_text().startswith("<?xml")


def test_errors_by_their_definitions():
    probabilities = np.array([[0.9, 0.1], [0.91, 0.09], [0.3, 0.7], [0.55, 0.45]])
    labels = np.array([0, 1, 1, 0])
    found = measure(probabilities, labels)
    # Bins of 1/15: 0.533 to 0.6, 0.667 to 0.733, 0.867 to 0.933.
    assert found["count"] == [1, 1, 2]
    assert found["accuracy"] == [1.0, 1.0, 0.5]
    error = (0.45 + 0.3 + 2 * (0.905 - 0.5)) / 4
    assert found["expected_calibration_error"] == pytest.approx(error)
    squares = (probabilities - np.eye(2)[labels]) ** 2
    assert found["brier_score"] == pytest.approx(squares.sum(axis=1).mean() / 2)
    assert measure(np.ones((2, 1)), np.zeros(2, int))["brier_score"] == 0.0
    three = np.full((2, 3), 1 / 3)
    squares = (three - np.eye(3)[[0, 0]]) ** 2
    assert measure(three, np.zeros(2, int))["brier_score"] == pytest.approx(
        squares.sum(axis=1).mean()
    )


def one_hot(labels, size=4.0):
    return size * np.eye(3)[labels]


LABELS = np.arange(60) % 3
FLAT = np.random.default_rng(0).normal(size=(60, 3))


@pytest.mark.parametrize(
    ("logits", "labels", "note"),
    [
        (one_hot(LABELS), LABELS, "all 60 answers are right"),
        (FLAT, np.ones(60, int), "all 60 examples have the same label"),
        (FLAT[:5], LABELS[:5], "too few examples: 5; expected at least 50"),
        (FLAT[:1], LABELS[:1], "too few examples: 1"),
        (one_hot(LABELS), LABELS[::-1], "which asks for ever higher temperatures, beyond 0.1 to"),
        (0.01 * one_hot(LABELS), np.append(LABELS[:-1], 0), "ever lower temperatures"),
    ],
)
def test_what_shows_no_temperature_leaves_it_at_1(model, logits, labels, note):
    report = calibrate(model, logits, labels)
    assert report.calibration.temperature == 1.0
    assert note in report.note and note in describe(report.as_json())
    errors = [each["expected_calibration_error"] for each in (report.before, report.after)]
    assert errors[0] == errors[1] < np.inf


def exact_bound(right, count):
    """SciPy's own interval: one side of 90 % is at 95 %."""
    exact = scipy.stats.binomtest(right, count)
    return exact.proportion_ci(confidence_level=0.9, method="exact").low


def test_the_threshold_is_the_least_that_shows_the_precision(model, examples):
    logits, labels = examples
    report = calibrate(model, logits, labels, precision=0.9)
    temperature, threshold = report.calibration.temperature, report.calibration.sure_threshold
    probabilities = scipy.special.softmax(logits / temperature, axis=1)
    is_right = probabilities.argmax(axis=1) == labels

    def bound(threshold):
        right = is_right[probabilities.max(axis=1) >= threshold]
        return exact_bound(int(right.sum()), len(right))

    assert bound(threshold) >= 0.9
    lower = np.sort(probabilities.max(axis=1)[probabilities.max(axis=1) < threshold])
    assert max(map(bound, lower[-20:])) < 0.9
    sure = report.sure
    assert sure["answers"] == np.sum(probabilities.max(axis=1) >= threshold)
    assert sure["right"] >= 0.9 * sure["answers"]
    assert 0 < sure["held_out"]["right"] <= sure["held_out"]["answers"]
    assert f"{sure['answers']} of 2000 answers" in describe(report.as_json())


def test_a_precision_that_nothing_shows():
    few = scipy.special.softmax(one_hot(LABELS), axis=1)
    # The bound of 60 right answers of 60.
    with pytest.raises(ValueError, match=r"No threshold .* of 0.96 on these 60 .* is 0.951"):
        find_threshold(few, LABELS, 0.96)
    assert find_threshold(few, LABELS, 0.95) == pytest.approx(few.max(), abs=1e-6)
    with pytest.raises(ValueError, match="is 0.000"):
        find_threshold(few, (LABELS + 1) % 3, 0.1)


@pytest.mark.parametrize("precision", [0.03, 0.5, 0.9, 0.95, 0.99, 0.999])
def test_how_many_answers_a_precision_needs(precision):
    count = answers_needed(precision)
    assert exact_bound(count, count) >= precision
    assert count == 1 or exact_bound(count - 1, count - 1) < precision
    share = (1 + precision) / 2
    count = answers_needed(precision, share)
    assert exact_bound(int(np.ceil(share * count)), count) >= precision
    assert count < 5 or exact_bound(int(share * (count - 1)), count - 1) < precision
    assert answers_needed(precision, precision) is None and answers_needed(1 - 1e-9) is None


def test_the_refusal_says_how_many_rows_it_takes():
    """As the answers seen here are: of those above 0.8, half of all, 97 of 100 are right."""
    confidence = np.tile([0.9, 0.7], 100)
    right = np.where(confidence > 0.8, np.arange(200) >= 6, np.arange(200) % 4 == 1)
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    with pytest.raises(ValueError) as error:
        find_threshold(probabilities, np.where(right, 0, 1), 0.95)
    said = str(error.value)
    assert "at least 59 labelled rows" in said  # log(0.05) / log(0.95) = 58.4
    rows = int(said.rpartition("about ")[2].rstrip(".").replace(",", ""))
    sure = rows // 2
    assert exact_bound(round(0.97 * sure * 1.05), round(sure * 1.05)) >= 0.95
    assert exact_bound(round(0.97 * sure * 0.9), round(sure * 0.9)) < 0.95
    with pytest.raises(ValueError, match="too few are right, whatever the threshold"):
        find_threshold(probabilities, np.ones(200, int), 0.95)
    with pytest.raises(ValueError, match="more than 10,000,000"):
        find_threshold(probabilities, np.where(right, 0, 1), 1 - 1e-9)

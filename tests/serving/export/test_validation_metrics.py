"""The cost of an export's options is a number, or the examples are refused."""

import types

import numpy as np
import pytest
import scipy.stats

from serving.export.validation import class_or_score_metric

METRIC = class_or_score_metric(types.SimpleNamespace(class_names=None))
ROWS = [{"label": label} for label in ("0", "2.5", "5")]


def test_a_correlation():
    labels = METRIC.read_labels(ROWS)
    found = METRIC.measure([{"score": np.array([1.0, 2.0])}, {"score": np.array([2.5])}], labels)
    assert found == pytest.approx(scipy.stats.pearsonr([1.0, 2.0, 2.5], [0, 2.5, 5]).statistic)


def test_answers_that_are_all_the_same():
    assert METRIC.measure([{"score": np.ones(3)}], METRIC.read_labels(ROWS)) == 0.0


@pytest.mark.parametrize("labels", [["3", "3"], ["nan", "3"], ["3"]])
def test_labels_without_a_correlation(labels):
    with pytest.raises(ValueError, match="needs examples of different scores"):
        METRIC.read_labels([{"label": label} for label in labels])

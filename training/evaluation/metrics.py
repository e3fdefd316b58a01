"""Metrics: what predictions of classes, choices or scores are measured by."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.stats
import sklearn.metrics

from gpt1_keras.examples import Examples

Metric = Callable[[np.ndarray, np.ndarray], float]


def _correlation(correlate: Callable[..., Any]) -> Metric:
    """Returns a metric: a correlation, or 0 (as Matthews' is) if all predictions are equal."""

    def metric(true: np.ndarray, predicted: np.ndarray) -> float:
        if np.ptp(predicted) == 0:
            return 0.0
        return correlate(true, predicted).statistic

    return metric


# Functions of true and predicted class indices, or of true and predicted scores.
METRICS: dict[str, Metric] = {
    "accuracy": sklearn.metrics.accuracy_score,
    "f1": sklearn.metrics.f1_score,
    "matthews": sklearn.metrics.matthews_corrcoef,
    "pearson": _correlation(scipy.stats.pearsonr),
    "spearman": _correlation(scipy.stats.spearmanr),
}
_CORRELATIONS = ("pearson", "spearman")  # undefined where all labels are the same


def check_scorable(examples: Examples, metrics: tuple[str, ...], what: str) -> None:
    """Raises ValueError where a metric would not be a number, before any work is done.

    Args:
        examples: all of them labelled.
        what: what the examples are, for the message.
    """
    if not len(examples):
        raise ValueError(f"{what} has no example with a label.")
    undefined = [name for name in metrics if name in _CORRELATIONS]
    if undefined and np.ptp(examples.labels) == 0:
        raise ValueError(
            f"{what} has the same label, {examples.labels[0]:g}, for all of its {len(examples)} "
            f"examples: {' and '.join(undefined)} are undefined. Expected different scores."
        )


def score(
    examples: Examples, predictions: np.ndarray, metrics: tuple[str, ...]
) -> dict[str, float]:
    """Computes metrics by name.

    Args:
        examples: all of them labelled.
        predictions: array `[examples]`, from `predictions_of`.
        metrics: keys of `METRICS`.
    """
    return {name: float(METRICS[name](examples.labels, predictions)) for name in metrics}

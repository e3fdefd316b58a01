"""How far probabilities can be trusted: figures, and the reliability diagram."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.special
import sklearn.metrics
from matplotlib.axes import Axes
from sklearn.calibration import calibration_curve

from training.evaluation.plots import BLUE, new_figure, save

_BINS = 15  # as in Guo et al. (2017)


def measure(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Measures how far probabilities can be trusted.

    Args:
        probabilities: float `[examples, classes]`.
        labels: int `[examples]`.

    Returns:
        `expected_calibration_error` of the predicted class, in bins of equal width; `brier_score`;
        `log_loss`; and the diagram's bins that are not empty: `confidence`, `accuracy`, `count`.
    """
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    accuracies, confidences = calibration_curve(is_right.astype(int), confidence, n_bins=_BINS)
    edges = np.linspace(0.0, 1.0, _BINS + 1)[1:-1]
    counts = np.bincount(np.searchsorted(edges, confidence), minlength=_BINS)
    counts = counts[counts > 0]
    gaps = np.abs(accuracies - confidences)
    # The mean squared distance from the right class; with two classes, half of that. A single
    # choice counts as one of two.
    padded = np.pad(probabilities, ((0, 0), (0, max(0, 2 - probabilities.shape[1]))))
    classes = np.arange(padded.shape[1])
    brier_score = sklearn.metrics.brier_score_loss(labels, padded, labels=classes)
    return {
        "expected_calibration_error": float(np.average(gaps, weights=counts)),
        "brier_score": float(brier_score),
        "log_loss": log_loss(np.log(np.maximum(probabilities, np.finfo(float).tiny)), labels),
        "confidence": confidences.tolist(),
        "accuracy": accuracies.tolist(),
        "count": counts.tolist(),
    }


def log_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the mean negative log-likelihood of labels, int `[examples]`, in nats."""
    of_labels = scipy.special.log_softmax(logits, axis=1)[np.arange(len(labels)), labels]
    return float(-of_labels.mean())


def plot_reliability(report: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Plots the diagram before and after calibration.

    Args:
        report: the content of calibration.json.
    """
    figure, (before, after) = new_figure(9, 5, columns=2)
    _plot_bins(before, report["before"], "Before")
    _plot_bins(after, report["after"], f"After, temperature {report['temperature']:.3g}")
    before.set_ylabel("share of answers that are right")
    before.legend(frameon=False, loc="upper left")
    save(figure, path)


def plot_probabilities(measured: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Plots the diagram of probabilities, as `measure` measured them."""
    figure, (axes,) = new_figure(5, 5)
    _plot_bins(axes, measured, "Probabilities as they are given")
    axes.set_ylabel("share of answers that are right")
    axes.legend(frameon=False, loc="upper left")
    save(figure, path)


def _plot_bins(axes: Axes, measured: Mapping[str, Any], title: str) -> None:
    counts = np.array(measured["count"])
    confidence, accuracy = measured["confidence"], measured["accuracy"]
    error = 100 * measured["expected_calibration_error"]
    axes.set_title(f"{title}\nexpected calibration error {error:.1f} %")
    axes.bar(
        confidence,
        counts / counts.sum(),
        width=0.7 / _BINS,
        color="0.85",
        label="share of all answers",
    )
    axes.plot([0, 1], [0, 1], "--", color="0.4", label="as it should be")
    axes.plot(confidence, accuracy, "o-", color=BLUE, clip_on=False, label="right")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_xlabel("probability of the answer")

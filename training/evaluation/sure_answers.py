"""The threshold of sure answers: the probability from which answers are right often enough."""

import math

import numpy as np
import scipy.stats

_RISK = 0.05  # probability that sure answers are right less often than asked
_PARTS = 10**6  # thresholds are rounded down to parts of 1, because exports compute in float32


def find_threshold(probabilities: np.ndarray, labels: np.ndarray, precision: float) -> float:
    """Returns the lowest threshold with enough right answers at or above it.

    Args:
        probabilities: float `[examples, classes]`.
        labels: int `[examples]`.
        precision: the share of those answers that must be right. A one-sided lower 95 % confidence
            bound (Clopper and Pearson) must reach it.
    """
    confidence, bounds = _precision_bounds(probabilities, labels)
    reached = np.flatnonzero(bounds >= precision)
    if not len(reached):
        raise ValueError(
            f"No threshold shows a precision of {precision:g} on these {len(labels)} examples: the "
            f"highest that they show, with 95 % confidence, is {bounds.max():.3f}, from a "
            f"probability of {confidence[bounds.argmax()]:.3f} on."
        )
    return math.floor(confidence[reached[-1]] * _PARTS) / _PARTS


def _precision_bounds(
    probabilities: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns thresholds, descending, and for each a lower bound of the precision."""
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    order = np.argsort(-confidence, kind="stable")
    confidence, right = confidence[order], np.cumsum(is_right[order])
    count = np.arange(1, len(right) + 1)
    # Answers of equal probability are sure together.
    ends = np.append(np.diff(confidence) != 0, True)
    right, count = right[ends], count[ends]
    bounds = scipy.stats.beta.ppf(_RISK, np.maximum(right, 1), count - right + 1)
    return confidence[ends], np.where(right > 0, bounds, 0.0)

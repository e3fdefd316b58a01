"""Which answers a model is sure of: those that are right as often as is asked for."""

import math

import numpy as np
import scipy.stats

_RISK = 0.05  # that sure answers are right less often
_PARTS = 10**6  # of 1, down to which thresholds are rounded: exports compute in float32


def find_threshold(probabilities: np.ndarray, labels: np.ndarray, precision: float) -> float:
    """Returns the least probability from which on answers are right often enough.

    Args:
        probabilities: float `[examples, classes]`.
        labels: int `[examples]`.
        precision: the share of them that has to be right, which a one-sided 95 % confidence bound
            (Clopper and Pearson) must reach.

    Raises:
        ValueError: there is no such probability.
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
    """Of each threshold, descending: it, and a lower bound of the precision from it on."""
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    order = np.argsort(-confidence, kind="stable")
    confidence, right = confidence[order], np.cumsum(is_right[order])
    count = np.arange(1, len(right) + 1)
    # Equal ones are sure together.
    ends = np.append(np.diff(confidence) != 0, True)
    right, count = right[ends], count[ends]
    bounds = scipy.stats.beta.ppf(_RISK, np.maximum(right, 1), count - right + 1)
    return confidence[ends], np.where(right > 0, bounds, 0.0)

"""Temperature scaling (Guo et al., 2017), and the threshold from which answers are sure."""

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats

from gpt1_keras.tasks.calibration import Calibration
from gpt1_keras.tasks.task import Task
from training.evaluation.reliability import log_loss, measure

LOWEST, HIGHEST = 0.1, 10.0  # temperatures
_LEAST_EXAMPLES = 50
_RISK = 0.05  # probability that sure answers are right less often than asked
_PARTS = 10**6  # thresholds are rounded down to parts of 1, because exports compute in float32


@dataclasses.dataclass(frozen=True)
class Report:
    """A model's calibration, and what it changes.

    Attributes:
        calibration: what was found on all examples.
        note: why the temperature stays 1, in words; None if one was fitted.
        before, after: what `measure` returns. For `after`, each half of the examples is measured at
            the temperature that the other half shows.
        sure: None if no precision was asked for. Otherwise the `precision`; the number of
            `examples`; `answers`, how many are sure; `right`, how many of those are right; and
            `held_out`, the last two by the threshold that the other half of the examples shows.
    """

    calibration: Calibration
    note: str | None
    before: dict[str, Any]
    after: dict[str, Any]
    sure: dict[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        """Returns the content of calibration.json."""
        named = dataclasses.asdict(self)
        return named.pop("calibration") | named


def calibrate(
    model: Task, outputs: np.ndarray, labels: np.ndarray, precision: float | None = None
) -> Report:
    """Finds the temperature of the highest likelihood, and the threshold of sure answers.

    Args:
        model: with classes or choices.
        outputs: of the model, for examples that it has not learned from: float
            `[examples, classes or choices]`.
        labels: int `[examples]`, indices of classes or choices.
        precision: the share of sure answers that must be right. The threshold is the lowest where
            a one-sided 95 % confidence bound (Clopper and Pearson) reaches it.

    Raises:
        ValueError: the answers have no probabilities, or no threshold shows that precision.
    """
    logits = np.asarray(model.task_head.logits(outputs), np.float64)
    # Equal classes say nothing of the model; equal indices of choices may be by design.
    note = _lack(logits, labels, has_classes=model.class_names is not None)
    temperature = 1.0
    if note is None:
        temperature = fit_temperature(logits, labels)
        note = None if _is_inside(temperature) else _describe_bound(logits, labels, temperature)
        temperature = temperature if note is None else 1.0
    probabilities = scipy.special.softmax(logits / temperature, axis=1)
    held_out, is_sure = _held_out(logits, labels, is_fitted=note is None, precision=precision)
    threshold, sure = None, None
    if precision is not None:
        threshold = find_threshold(probabilities, labels, precision)
        is_right = probabilities.argmax(axis=1) == labels
        above = probabilities.max(axis=1) >= threshold
        sure = {
            "precision": precision,
            "examples": len(labels),
            **_count(above, is_right),
            "held_out": _count(is_sure, is_right),
        }
    return Report(
        Calibration(temperature, threshold),
        note,
        measure(scipy.special.softmax(logits, axis=1), labels),
        measure(held_out, labels),
        sure,
    )


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the temperature of the highest likelihood, from `LOWEST` to `HIGHEST`.

    Args:
        logits: float `[examples, classes]`.
        labels: int `[examples]`.
    """

    def loss(log_temperature: float) -> float:
        return log_loss(logits / np.exp(log_temperature), labels)

    bounds = (np.log(LOWEST), np.log(HIGHEST))
    found = scipy.optimize.minimize_scalar(loss, bounds=bounds, options={"xatol": 1e-6})
    return float(np.exp(found.x))


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


def _held_out(
    logits: np.ndarray, labels: np.ndarray, is_fitted: bool, precision: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns each example's probabilities, and if it is sure, by what the other half shows."""
    probabilities = np.empty_like(logits)
    is_sure = np.zeros(len(labels), bool)
    halves = np.array_split(np.random.default_rng(0).permutation(len(labels)), 2)
    for seen, asked in (halves, halves[::-1]):
        temperature = fit_temperature(logits[seen], labels[seen]) if is_fitted else 1.0
        temperature = temperature if _is_inside(temperature) else 1.0
        scaled = scipy.special.softmax(logits / temperature, axis=1)
        probabilities[asked] = scaled[asked]
        if precision is not None:
            with contextlib.suppress(ValueError):  # half of the examples may be too few to show it
                threshold = find_threshold(scaled[seen], labels[seen], precision)
                is_sure[asked] = scaled[asked].max(axis=1) >= threshold
    return probabilities, is_sure


def _count(is_sure: np.ndarray, is_right: np.ndarray) -> dict[str, int]:
    return {"answers": int(is_sure.sum()), "right": int(is_right[is_sure].sum())}


def _is_inside(temperature: float) -> bool:
    return LOWEST * 1.001 < temperature < HIGHEST / 1.001


def _lack(logits: np.ndarray, labels: np.ndarray, has_classes: bool) -> str | None:
    """Says why no temperature can be fitted to the examples; None if one can."""
    if len(labels) < _LEAST_EXAMPLES:
        return f"too few examples: {len(labels)}; expected at least {_LEAST_EXAMPLES}."
    if has_classes and np.ptp(labels) == 0:
        return f"all {len(labels)} examples have the same label."
    if (logits.argmax(axis=1) == labels).all():
        return f"all {len(labels)} answers are right, at any temperature."
    return None


def _describe_bound(logits: np.ndarray, labels: np.ndarray, temperature: float) -> str:
    right = int((logits.argmax(axis=1) == labels).sum())
    how = "ever lower" if temperature < 1.0 else "ever higher"
    return (
        f"{right} of {len(labels)} answers are right, which asks for {how} temperatures, beyond "
        f"{LOWEST:g} to {HIGHEST:g}."
    )


def describe(content: Mapping[str, Any]) -> str:
    """Puts the content of calibration.json into one or two lines."""
    before, after = (
        f"{100 * content[name]['expected_calibration_error']:.1f} %" for name in ("before", "after")
    )
    lines = [
        f"Not calibrated: {content['note']} Expected calibration error {before}"
        if content["note"]
        else f"Temperature {content['temperature']:.3g}: expected calibration error {before} "
        f"before, {after} after, on the half of the examples that it was not fitted to"
    ]
    sure = content["sure"]
    if sure is not None:
        lines.append(
            f"Sure from a probability of {content['sure_threshold']:.4f} on: {sure['answers']} of "
            f"{sure['examples']} answers, of which {sure['right']} are right"
        )
    return "\n".join(lines)

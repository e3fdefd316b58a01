"""How reliable probabilities are, the temperature that makes them so, and a preset's."""

import bisect
import contextlib
import dataclasses
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats
import sklearn.metrics
from matplotlib.axes import Axes
from sklearn.calibration import calibration_curve

import gpt1_keras
from gpt1_keras.files import check_writable, contents_of, read_json, write_json
from gpt1_keras.presets.loading import preset_in
from gpt1_keras.presets.publishing import update_card
from gpt1_keras.tasks.heads import FRESH_ARGUMENTS, Calibration
from gpt1_keras.tasks.task import Task
from training.datasets.data_options import DEFAULT_DATA, DataOptions, ExampleOptions
from training.evaluation.fine_tuned_models import load_for_model, load_model
from training.evaluation.plots import BLUE, new_figure, save
from training.evaluation.predictions import predict_outputs

_BINS = 15  # as in Guo et al. (2017)

LOWEST, HIGHEST = 0.1, 10.0  # temperatures
_LEAST_EXAMPLES = 50
_RISK = 0.05  # probability that sure answers are right less often than asked
_MOST_ANSWERS = 10**7  # that a precision may need
_PARTS = 10**6  # thresholds are rounded down to parts of 1, because exports compute in float32
CALIBRATION, DIAGRAM = "calibration.json", "calibration.svg"  # in the folder of a run
_TASK = "task.json"


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
    confidence, right, count = _sure_counts(probabilities, labels)
    bounds = _precision_bound(right, count)
    reached = np.flatnonzero(bounds >= precision)
    if not len(reached):
        raise ValueError(
            f"No threshold shows a precision of {precision:g} on these {len(labels)} examples: the "
            f"highest that they show, with 95 % confidence, is {bounds.max():.3f}, from a "
            f"probability of {confidence[bounds.argmax()]:.3f} on. "
            f"{_describe_need(right, count, precision)}"
        )
    return math.floor(confidence[reached[-1]] * _PARTS) / _PARTS


def answers_needed(precision: float, share: float = 1.0) -> int | None:
    """Returns how many sure answers show a precision, with 95 % confidence.

    Args:
        precision: above 0 and below 1.
        share: of these answers that are right.

    Returns:
        The least number whose bound (see `find_threshold`) reaches the precision; None if ten
        million do not.
    """

    def bound(count: int) -> float:
        return _precision_bound(share * count, count)

    if bound(_MOST_ANSWERS) < precision:
        return None
    return bisect.bisect_left(range(_MOST_ANSWERS), precision, lo=1, key=bound)


def _describe_need(right: np.ndarray, count: np.ndarray, precision: float) -> str:
    """Says how many labelled rows a precision needs: at least, and by the answers seen here."""
    least = answers_needed(precision)
    number = f"at least {least:,}" if least else f"more than {_MOST_ANSWERS:,}"
    told = f"That takes {number} labelled rows, even if all are answered right"
    with np.errstate(divide="ignore"):
        # Of each threshold, about how many rows: the normal approximation, to find the best one.
        spare = np.maximum(right / count - precision, 0.0)
        best = (spare**-2 / count).argmin()
    needed = answers_needed(precision, right[best] / count[best])
    if needed is None:
        return f"{told}; of the answers seen here, too few are right, whatever the threshold."
    rows = float(f"{needed * count[-1] / count[best]:.2g}")
    return f"{told}; with the share of right answers seen here, about {rows:,.0f}."


def _precision_bound(right: Any, count: Any) -> Any:
    """Returns the one-sided lower bound of the precision of answers (Clopper and Pearson)."""
    bounds = scipy.stats.beta.ppf(_RISK, np.maximum(right, 1), count - right + 1)
    return np.where(right > 0, bounds, 0.0)


def _sure_counts(
    probabilities: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns thresholds, descending, and for each how many answers are right, and how many are."""
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    order = np.argsort(-confidence, kind="stable")
    confidence, right = confidence[order], np.cumsum(is_right[order])
    count = np.arange(1, len(right) + 1)
    # Answers of equal probability are sure together.
    ends = np.append(np.diff(confidence) != 0, True)
    return confidence[ends], right[ends], count[ends]


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
            f"{sure['examples']} answers, {sure['right']} of them right"
        )
    return "\n".join(lines)


def calibrate_preset(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str] | None,
    asked: ExampleOptions,
    sure_precision: float | None = None,
    data: DataOptions = DEFAULT_DATA,
) -> dict[str, Any]:
    """Calibrates a preset on a split of a data set or on a file.

    Args:
        model: path of a run of `gpt1 finetune`, or of its preset. The preset's temperature and
            threshold are replaced last, after all other files but its card; its weights stay as
            they are.
        output: folder for calibration.json and calibration.svg; None for the run's, where a run
            that goes on from this one finds which precision was asked for.
        asked: which examples; those without a label are left out.
        sure_precision: above 0 and below 1, or None for no threshold.

    Returns:
        The content of calibration.json: `temperature`; `sure_threshold`, or None; `note`, why the
        temperature is 1, or None; and `before`, `after` and `sure`, as in
        `training.evaluation.calibration.Report`.

    Raises:
        ValueError: a model without classes or choices, or for another data set; no labels; or no
            threshold shows that precision.
        DivergedError: the model's outputs are not numbers.
    """
    preset = preset_in(pathlib.Path(model))
    if not (preset / _TASK).is_file():  # a name or handle: those files are not the user's
        raise ValueError(
            "Expected the folder of a fine-tuned model, such as RUN/best. Received: "
            f"{model}. {contents_of(model)}"
        )
    if output is None:
        if not (preset.parent / "result.json").is_file():
            raise ValueError(f"{model} is not in a run of gpt1 finetune. Give --output.")
        output = preset.parent
    check_writable(output)
    fine_tuned, kind = load_model(model)
    if fine_tuned.calibration is None:
        raise ValueError(f"{model} predicts scores, which have no probabilities to calibrate.")
    described, _, examples = load_for_model(model, fine_tuned, kind, asked, data)
    examples = examples.labelled()
    if not len(examples):
        raise ValueError(f"{asked.file or asked.task} has no example with a label.")
    outputs = predict_outputs(fine_tuned, examples)
    report = calibrate(fine_tuned, outputs, examples.labels, sure_precision)
    content = {
        **described,
        "model": str(model),
        "examples": len(examples),
        **report.as_json(),
        "gpt1_keras": gpt1_keras.__version__,
    }
    plot_reliability(content, pathlib.Path(output, DIAGRAM))
    write_json(pathlib.Path(output, CALIBRATION), content)
    _store_calibration(preset, report.calibration)
    return content


def _store_calibration(preset: pathlib.Path, calibration: Calibration) -> None:
    path = preset / _TASK
    task = read_json(path)
    kept = {name: value for name, value in task["config"].items() if name not in FRESH_ARGUMENTS}
    task["config"] = kept | calibration.get_config()
    write_json(path, task)
    update_card(preset)

"""Compares two models' answers to the same examples."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.stats

from gpt1_keras.examples import Examples
from gpt1_keras.labelled_files import shown_names
from gpt1_keras.tasks.task import Task
from training.evaluation.answer_report import safe_cell, write_rows
from training.evaluation.fine_tuned_models import load_model
from training.evaluation.predictions import predict_outputs, predictions_of

CHANGED = "changed.csv"


def compare(
    model: Task,
    predictions: np.ndarray,
    examples: Examples,
    beside: str | os.PathLike[str],
    folder: str | os.PathLike[str],
) -> dict[str, Any]:
    """Compares a model with another one, by McNemar's exact test.

    Answers are compared by the names of their classes, so that one model may have more classes.

    Args:
        model: with classes or choices.
        predictions: of the model, int `[examples]`, from `predictions_of`.
        examples: all labelled.
        beside: path of the other model's preset.
        folder: gets changed.csv, the examples that the two answer differently.

    Returns:
        The path `beside`; the `accuracy` of both, `[beside, model]`; how many answers `changed`,
        how many of these are `now_right` and how many `now_wrong`; `p_value`, the probability of so
        uneven a split of the two, or a more uneven one, if both models were equally good; and
        `unknown`, the classes of the examples that `beside` lacks.

    Raises:
        ValueError: `beside` reads other texts or answers something else, or answers are scores.
    """
    other, _ = load_model(beside)
    is_alike = type(other) is type(model) and other.preprocessor.fields == model.preprocessor.fields
    if not is_alike or model.calibration is None or other.calibration is None:
        raise ValueError(
            "Expected two models that answer the same texts with classes or choices. Received: a "
            f"{type(model).__name__} of {model.preprocessor.fields} and, in {beside}, a "
            f"{type(other).__name__} of {other.preprocessor.fields}."
        )
    labels = _names(model, examples.labels)
    now = _names(model, predictions)
    before = _names(other, predictions_of(predict_outputs(other, examples)))
    was_right, is_right = before == labels, now == labels
    changed = np.flatnonzero(before != now)
    # What was right comes first: it is what a new model may be refused for.
    order = changed[np.lexsort((is_right[changed], ~was_right[changed]))]
    write_rows(
        pathlib.Path(folder, CHANGED),
        *(examples, [safe_cell(str(name)) for name in now], order),
        {"beside": [safe_cell(str(name)) for name in before[order]]},
    )
    gained, lost = int((is_right & ~was_right).sum()), int((was_right & ~is_right).sum())
    both = gained + lost
    known = set(_names(other, np.arange(len(other.class_names)))) if other.class_names else None
    return {
        "beside": str(beside),
        "accuracy": [float(was_right.mean()), float(is_right.mean())],
        "changed": len(changed),
        "now_right": gained,
        "now_wrong": lost,
        "p_value": float(scipy.stats.binomtest(lost, both).pvalue) if both else 1.0,
        "unknown": [] if known is None else sorted({*labels.tolist()} - known),
    }


def describe(compared: Mapping[str, Any], model: str | os.PathLike[str]) -> str:
    """Puts what `compare` returns into some lines."""
    before, now = compared["accuracy"]
    otherwise = compared["changed"] - compared["now_right"] - compared["now_wrong"]
    lines = [
        f"accuracy  {now:.4f}  {model}",
        f"accuracy  {before:.4f}  {compared['beside']}",
        f"{compared['changed']:,} answers changed ({CHANGED}): {compared['now_right']:,} were "
        f"wrong and are right, {compared['now_wrong']:,} were right and are wrong, {otherwise:,} "
        "were wrong and are wrong otherwise",
        f"McNemar's exact test: p = {compared['p_value']:.3g}, the probability of such a "
        "difference if both were equally good",
    ]
    if compared["unknown"]:
        unknown = shown_names(compared["unknown"])
        lines.append(f"{compared['beside']} has no {unknown}: it is wrong on all examples of these")
    return "\n".join(lines)


def _names(model: Task, indices: np.ndarray) -> np.ndarray:
    """Returns classes by name, array of objects; choices stay indices."""
    return indices if model.class_names is None else np.array(model.class_names, object)[indices]

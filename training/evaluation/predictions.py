"""A model's predictions on a data set, and a file of them to score again."""

import json
import os
import pathlib
import sys
from typing import Any

import numpy as np

from gpt1_keras.examples import Examples
from gpt1_keras.files import write_text
from gpt1_keras.tasks.task import Task
from training.datasets.length_batches import batch_order, count_tokens

FILE = "predictions.jsonl"  # in the folder of a run
_BATCH_SIZE = 64  # sequences


class DivergedError(ValueError):
    """A model's outputs are not numbers."""


def prediction_order(model: Task, examples: Examples) -> list[np.ndarray]:
    """Returns the batches in which `predict_outputs` reads the examples: arrays of indices."""
    lengths, _ = count_tokens(examples, model.preprocessor)
    return batch_order(lengths, max(1, _BATCH_SIZE // model.windows), seed=0, epoch=0)


def predictions_of(outputs: np.ndarray) -> np.ndarray:
    """Turns a model's outputs into labels.

    Args:
        outputs: from `predict_outputs`.

    Returns:
        array `[examples]`: int indices of classes or choices, or float scores.
    """
    return outputs.argmax(axis=-1) if outputs.ndim > 1 else outputs


def predict_outputs(
    model: Task, examples: Examples, order: list[np.ndarray] | None = None
) -> np.ndarray:
    """Predicts each example.

    Args:
        order: from `prediction_order`; by default it is found.

    Returns:
        float array `[examples, classes or choices]`, or scores `[examples]`.

    Raises:
        DivergedError: an output is NaN, or an answer's infinite.
    """
    order = prediction_order(model, examples) if order is None else order
    outputs = model.predict(examples.in_batches(order), verbose=int(sys.stdout.isatty()))
    # Choices that an example lacks have -inf. No comparison with NaN is true.
    if not ((outputs if outputs.ndim > 1 else np.abs(outputs)) < np.inf).all():
        raise DivergedError(
            "The model's outputs are not numbers (NaN or infinite): its training has diverged. Try "
            "a lower learning rate."
        )
    return outputs


def write_predictions(
    folder: str | os.PathLike[str], examples: Examples, answers: np.ndarray
) -> None:
    """Writes a line for each example: its number, its label (or null) and the prediction.

    Args:
        folder: path; gets predictions.jsonl.
        answers: from `predictions_of`.
    """
    columns = (examples.indices, examples.is_labelled, examples.labels, answers)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    lines = [
        json.dumps({"number": number, "label": label if has_label else None, "answer": answer})
        for number, has_label, label, answer in rows
    ]
    write_text(pathlib.Path(folder, FILE), "".join(f"{line}\n" for line in lines))


def read_predictions(folder: str | os.PathLike[str]) -> list[dict[str, Any]] | None:
    """Reads what `write_predictions` wrote: a dict for each example; None if there is no file."""
    path = pathlib.Path(folder, FILE)
    if not path.is_file():
        return None
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}.") from None
    if not all(
        isinstance(row, dict) and {"number", "label", "answer"} <= row.keys() for row in rows
    ):
        raise ValueError(f"{path} is damaged: expected number, label and answer in each line.")
    return rows

"""Predictions as a file, from which anyone can compute the scores again."""

import json
import os
import pathlib
from typing import Any

import numpy as np

from gpt1_keras.files import write_text
from training.datasets.labelled_examples import LabelledExamples

FILE = "predictions.jsonl"  # in the folder of a run


def write_predictions(
    folder: str | os.PathLike[str], examples: LabelledExamples, answers: np.ndarray
) -> None:
    """Writes a line for each example: its number, its label (or null) and the prediction.

    Args:
        folder: path; gets predictions.jsonl.
        answers: from `training.evaluation.predicting.answers_of`.
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

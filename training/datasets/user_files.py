"""A user's own labelled texts: CSV, TSV and JSON Lines files as a data set.

The columns tell what kind of data it is: `text`; or `premise` and `hypothesis`; or `text1` and
`text2`, whose order does not matter; or `context`, optionally `question`, and `choices`, in CSV and
TSV `choice1`, `choice2`, ..., the last of which may be empty. `label` is a class; with choices, the
index of the right one, from 0; or a score, if all labels are numbers and some have a fraction.
"""

import dataclasses
import math
import os
from collections.abc import Iterable

import numpy as np

from gpt1_keras.labelled_files import CHOICES, LABEL, Row, as_label, read_rows, shortened
from gpt1_keras.tasks.task import Task
from training.datasets.paper_datasets import (
    CLASSIFICATION,
    MULTIPLE_CHOICE,
    SIMILARITY,
    TfdsDataset,
)

_KINDS = {
    ("text",): CLASSIFICATION,
    ("premise", "hypothesis"): CLASSIFICATION,
    ("text1", "text2"): SIMILARITY,
    ("context", "question", CHOICES): MULTIPLE_CHOICE,
    ("context", CHOICES): MULTIPLE_CHOICE,
}
_SCORE_METRICS = ("pearson", "spearman")
_MOST_SCORES = 10_000  # integers in a range of scores
_MISSING = ("nan", "<na>", "nat")  # in lower case
_MOST_SHOWN = 20  # names in a message


@dataclasses.dataclass(frozen=True)
class UserFiles:
    """Files as a data set, with the attributes of `TfdsDataset` that models need.

    Attributes:
        paths: dict from `"train"`, `"validation"` or `"test"` to paths.
        kind, fields, metrics, score_range, glue_file: as in
            `training.datasets.paper_datasets.TfdsDataset`.
        class_names: None without classes.
    """

    paths: dict[str, str]
    kind: str
    fields: dict[str, str]
    metrics: tuple[str, ...]
    score_range: tuple[int, int] | None
    class_names: list[str] | None
    glue_file: None = None

    def read(self, role: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Reads texts by field, and labels, as `training.datasets.tfds_readers` returns them.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: it cannot be read, or a label is not one of the data set's.
        """
        path = self.paths[role]
        rows = read_rows(path)
        missing = {*self.fields, LABEL} - rows[0].keys()
        if missing:
            raise ValueError(f"{path} has no columns {sorted(missing)}; it has {sorted(rows[0])}.")
        _check_rows(path, rows, self.fields)
        texts = {field: _column([row[field] for row in rows]) for field in self.fields}
        return texts, self._labels(path, rows)

    def _labels(self, path: str, rows: list[Row]) -> np.ndarray:
        labels = [str(row[LABEL]) for row in rows]
        if self.class_names is not None:
            numbers_of = {as_label(name): number for number, name in enumerate(self.class_names)}
            unknown = sorted(set(labels) - numbers_of.keys())
            if unknown:
                raise ValueError(
                    f"{path} has the labels {_shown(unknown)}; expected {_shown(self.class_names)}."
                )
            return np.array([numbers_of[label] for label in labels], np.int32)
        numbers = [_number(label) for label in labels]
        for row, number in zip(rows, numbers):
            if self.score_range is not None:
                low, high = self.score_range
                is_valid = number is not None and low <= number <= high
                expected = f"a score from {low} to {high}"
            else:
                is_valid = number in range(len(row[CHOICES]))
                expected = f"the index of one of the {len(row[CHOICES])} choices, from 0"
            if not is_valid:
                raise ValueError(
                    f"{path}, line {row.line}: has the label {row[LABEL]!r}; expected {expected}."
                )
        return np.array(numbers, np.int32 if self.score_range is None else np.float32)


Dataset = TfdsDataset | UserFiles  # what a model is fine-tuned on


def find_user_files(train: str | os.PathLike[str], validation: str | os.PathLike[str]) -> UserFiles:
    """Finds out from the train file's columns and labels what kind of data set the files are.

    Args:
        train: path.
        validation: path of a file with the same columns.

    Raises:
        FileNotFoundError: the train file does not exist.
        ValueError: it cannot be read, or its columns fit no kind of data set.
    """
    rows = read_rows(train)
    columns = rows[0].keys()
    fields = next((names for names in _KINDS if {*names, LABEL} <= columns), None)
    if fields is None:
        raise ValueError(
            f"{train} has the columns {sorted(columns)}; expected `label` and one of "
            f"{[', '.join(names) for names in _KINDS]}."
        )
    kind = _KINDS[fields]
    _check_rows(train, rows, fields)
    labels = [str(row[LABEL]) for row in rows]
    numbers = [number for number in map(_number, labels) if number is not None]
    is_score = any(number % 1 for number in numbers)
    if is_score and len(numbers) < len(labels) and kind != MULTIPLE_CHOICE:
        row = next(row for row in rows if _number(str(row[LABEL])) is None)
        raise ValueError(
            f"{train}, line {row.line}: has the label {row[LABEL]!r}, which is no number; others "
            "have a fraction, as scores have and classes have not."
        )
    metrics: tuple[str, ...] = ("accuracy",)
    score_range = class_names = None
    if kind == MULTIPLE_CHOICE:
        pass
    elif is_score:
        metrics = _SCORE_METRICS
        score_range = (math.floor(min(numbers)), math.ceil(max(numbers)))
        if score_range[1] - score_range[0] > _MOST_SCORES:
            raise ValueError(
                f"{train} has scores from {score_range[0]} to {score_range[1]}, and the model has "
                f"an output for each integer of their range. Scale them to at most {_MOST_SCORES}."
            )
    else:
        class_names = sorted(set(labels))
    paths = {"train": str(train), "validation": str(validation)}
    names = {field: field for field in fields}
    return UserFiles(paths, kind, names, metrics, score_range, class_names)


def user_files_for(model: Task, kind: str, path: str | os.PathLike[str]) -> UserFiles:
    """Returns a file to evaluate a fine-tuned model on, as a data set with the split `"test"`.

    Args:
        model: fine-tuned.
        kind: kind of model, as `training.evaluation.fine_tuned_models.load_model` returns it.
        path: of the file.
    """
    score_range = getattr(model, "score_range", None)
    return UserFiles(
        paths={"test": str(path)},
        kind=kind,
        fields={name: name for name in model.preprocessor.fields},
        metrics=_SCORE_METRICS if score_range else ("accuracy",),
        score_range=score_range,
        class_names=getattr(model, "class_names", None),
    )


def _check_rows(path: str | os.PathLike[str], rows: list[Row], fields: Iterable[str]) -> None:
    """Raises ValueError, with the line, for a text or label that is a list, or for no label."""
    for row in rows:
        for name in (*fields, LABEL):
            if isinstance(row[name], list) != (name == CHOICES):
                expected = "a list of texts" if name == CHOICES else "one text"
                received = shortened(repr(row[name]))
                raise ValueError(
                    f"{path}, line {row.line}: {name} must be {expected}. Received: {received}."
                )
        if not row[LABEL]:
            raise ValueError(f"{path}, line {row.line}: the label is empty.")
        if str(row[LABEL]).lower() in _MISSING:
            raise ValueError(
                f"{path}, line {row.line}: the label is {row[LABEL]!r}, as pandas writes a "
                "missing one."
            )


def _column(values: list[str | list[str]]) -> np.ndarray:
    """Returns texts as an array of byte strings, or of arrays of byte strings."""
    column = np.empty(len(values), object)
    for row, value in enumerate(values):
        if isinstance(value, list):
            column[row] = np.array([text.encode() for text in value], object)
        else:
            column[row] = value.encode()
    return column


def _shown(names: list[str]) -> str:
    """Formats names for a message, at most 20 of them."""
    more = f", and {len(names) - _MOST_SHOWN:,} more" if len(names) > _MOST_SHOWN else ""
    return f"{[shortened(name) for name in names[:_MOST_SHOWN]]}{more}"


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None

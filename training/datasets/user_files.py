"""A user's own labelled texts: CSV, TSV and JSON Lines files as a task.

The columns say what the task is: `text`; or `premise` and `hypothesis`; or `text1` and `text2`,
whose order does not matter; or `context`, optionally `question`, and `choices`, in CSV and TSV
`choice1`, `choice2`, ... of which some may be empty. `label` is a class; for choices the number of
the right one, from 0; or a score, where every label is a number and some are not whole.
"""

import dataclasses
import math
import re

import numpy as np

from gpt1_keras.labelled_files import read_rows
from training.datasets.tasks import CLASSIFICATION, MULTIPLE_CHOICE, SIMILARITY

_KINDS = {
    ("text",): CLASSIFICATION,
    ("premise", "hypothesis"): CLASSIFICATION,
    ("text1", "text2"): SIMILARITY,
    ("context", "question", "choices"): MULTIPLE_CHOICE,
    ("context", "choices"): MULTIPLE_CHOICE,
}
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_SCORE_METRICS = ("pearson", "spearman")
_CHOICE = re.compile(r"choice\d+")


@dataclasses.dataclass(frozen=True)
class UserFileTask:
    """Files as a task; the attributes of `training.datasets.tasks.Task` that a model is made from.

    Attributes:
        paths: dict from `"train"`, `"validation"` or `"test"` to paths.
        kind, fields, metrics, score_range: as in `training.datasets.tasks.Task`.
        class_names: list of str; None without classes.
    """

    paths: dict[str, str]
    kind: str
    fields: dict[str, str]
    metrics: tuple[str, ...]
    score_range: tuple[int, int] | None
    class_names: list[str] | None
    glue_file: None = None

    def read(self, role):
        """The texts by field and the labels of a file, as the readers of `tfds_oddities`.

        Raises:
            FileNotFoundError, ValueError: as `read_rows`, or a label that is none of the task's.
        """
        path = self.paths[role]
        rows = read_rows(path)
        missing = {*self.fields, "label"} - rows[0].keys()
        if missing:
            raise ValueError(f"{path} has no columns {sorted(missing)}; it has {sorted(rows[0])}.")
        texts = {field: _column([row[field] for row in rows]) for field in self.fields}
        return texts, self._labels(path, rows)

    def _labels(self, path, rows):
        labels = [row["label"] for row in rows]
        if self.class_names is not None:
            unknown = set(labels) - set(self.class_names)
            if unknown:
                raise ValueError(
                    f"{path} has the labels {sorted(unknown)}; expected {self.class_names}."
                )
            return np.array([self.class_names.index(label) for label in labels], np.int32)
        numbers = [_number(label) for label in labels]
        for row, number in zip(rows, numbers):
            if self.score_range is not None:
                low, high = self.score_range
                is_right, expected = number is not None and low <= number <= high, "a score from "
                expected += f"{low} to {high}"
            else:
                is_right = number in range(len(row["choices"]))
                expected = f"the number of one of the {len(row['choices'])} choices, from 0"
            if not is_right:
                raise ValueError(f"{path} has the label {row['label']!r}; expected {expected}.")
        return np.array(numbers, np.int32 if self.score_range is None else np.float32)


def find_user_file_task(train, validation):
    """Tells from the train file what the task is.

    Args:
        train, validation: paths of files with the same columns.

    Returns:
        `UserFileTask`.

    Raises:
        FileNotFoundError, ValueError: as `read_rows`, or columns that are no task's.
    """
    rows = read_rows(train)
    columns = rows[0].keys()
    fields = next((names for names in _KINDS if {*names, "label"} <= columns), None)
    if fields is None:
        raise ValueError(
            f"{train} has the columns {sorted(columns)}; expected `label` and one of "
            f"{[', '.join(names) for names in _KINDS]}."
        )
    kind = _KINDS[fields]
    labels = [row["label"] for row in rows]
    numbers = [_number(label) for label in labels]
    metrics, score_range, class_names = ("accuracy",), None, None
    if kind == MULTIPLE_CHOICE:
        pass
    elif None not in numbers and any(number != int(number) for number in numbers):
        metrics = _SCORE_METRICS
        score_range = (math.floor(min(numbers)), math.ceil(max(numbers)))
    else:
        class_names = sorted(set(labels))
    paths = {"train": str(train), "validation": str(validation)}
    names = {field: field for field in fields}
    return UserFileTask(paths, kind, names, metrics, score_range, class_names)


def user_file_task_of(model, kind, path):
    """A file that a fine-tuned model is to be evaluated on, as a task with the split `"test"`.

    Args:
        model, kind: as `training.datasets.task_models.load_model` gives them.
        path: of the file.

    Returns:
        `UserFileTask`.
    """
    score_range = getattr(model, "score_range", None)
    return UserFileTask(
        paths={"test": str(path)},
        kind=kind,
        fields={name: name for name in model.preprocessor.fields},
        metrics=_SCORE_METRICS if score_range else ("accuracy",),
        score_range=score_range,
        class_names=getattr(model, "class_names", None),
    )


def _column(values):
    """Texts as an array of byte strings, or of arrays of them."""
    column = np.empty(len(values), object)
    for row, value in enumerate(values):
        if isinstance(value, list):
            column[row] = np.array([text.encode() for text in value], object)
        else:
            column[row] = value.encode()
    return column


def _number(text):
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None

"""A user's own labelled texts: CSV, TSV and JSON Lines files as a task.

The columns say what the task is: `text`; or `premise` and `hypothesis`; or `text1` and `text2`,
whose order does not matter; or `context`, optionally `question`, and `choices`, in CSV and TSV
`choice1`, `choice2`, ... of which some may be empty. `label` is a class; for choices the number of
the right one, from 0; or a score, where every label is a number and some are not whole.
"""

import csv
import dataclasses
import json
import math
import pathlib
import re

import numpy as np

from training.tasks import CLASSIFICATION, MULTIPLE_CHOICE, SIMILARITY

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
class TableTask:
    """Files as a task; the attributes of `training.tasks.Task` that a model is made from.

    Attributes:
        paths: dict from `"train"`, `"validation"` or `"test"` to paths.
        kind, fields, metrics, score_range: as in `training.tasks.Task`.
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
            FileNotFoundError, ValueError: as `read_table`, or a label that is none of the task's.
        """
        path = self.paths[role]
        rows = read_table(path)
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


def find_table_task(train, validation):
    """Tells from the train file what the task is.

    Args:
        train, validation: paths of files with the same columns.

    Returns:
        `TableTask`.

    Raises:
        FileNotFoundError, ValueError: as `read_table`, or columns that are no task's.
    """
    rows = read_table(train)
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
    return TableTask(paths, kind, names, metrics, score_range, class_names)


def table_task_of(model, kind, path):
    """A file that a fine-tuned model is to be evaluated on, as a task with the split `"test"`.

    Args:
        model, kind: as `training.models.load_model` gives them.
        path: of the file.

    Returns:
        `TableTask`.
    """
    score_range = getattr(model, "score_range", None)
    return TableTask(
        paths={"test": str(path)},
        kind=kind,
        fields={name: name for name in model.preprocessor.fields},
        metrics=_SCORE_METRICS if score_range else ("accuracy",),
        score_range=score_range,
        class_names=getattr(model, "class_names", None),
    )


def read_table(path):
    """Reads a file of examples.

    Args:
        path: of a `.csv`, `.tsv` or `.jsonl` file, UTF-8; the first two begin with the names of
            their columns.

    Returns:
        list of dicts from column to str; `choices` to a list of str.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: another ending, or a line that is not as the others; it has the line's number.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"The file {path} does not exist.")
    if path.suffix not in (*_DELIMITERS, ".jsonl"):
        raise ValueError(f"A table ends in .csv, .tsv or .jsonl. Received: {path}.")
    read = _read_json if path.suffix == ".jsonl" else _read_delimited
    try:
        # Spreadsheets begin files with a mark, which is no part of the first column's name.
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = list(read(file, path))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}.") from None
    if not rows:
        raise ValueError(f"{path} has no examples.")
    for line, row in rows:
        if row.keys() != rows[0][1].keys():
            raise ValueError(
                f"{path}, line {line}: has the columns {sorted(row)}; the first example has "
                f"{sorted(rows[0][1])}."
            )
    return [row for _, row in rows]


def _read_json(file, path):
    for line, text in enumerate(file, start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: is not JSON: {error}.") from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {line}: must be an object. Received: {text.strip()}.")
        yield (
            line,
            {
                name: [str(v) for v in value] if isinstance(value, list) else str(value)
                for name, value in row.items()
            },
        )


def _read_delimited(file, path):
    # The format of .tsv has no quotes: there, a text may begin with one.
    quoting = csv.QUOTE_NONE if path.suffix == ".tsv" else csv.QUOTE_MINIMAL
    reader = csv.DictReader(file, delimiter=_DELIMITERS[path.suffix], quoting=quoting, strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(
                    f"{path}, line {reader.line_num}: has another number of columns than the "
                    f"{len(reader.fieldnames)} that the first line names."
                )
            choices = [row.pop(name) for name in list(row) if _CHOICE.fullmatch(name)]
            if choices:
                row["choices"] = [choice for choice in choices if choice]
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}.") from None


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

"""A user's own labelled texts, in a file of any format of `gpt1_keras.labelled_files`.

The columns tell what kind of data it is: `text`; or `premise` and `hypothesis`; or `text1` and
`text2`, whose order does not matter; or `context`, optionally `question`, and `choices`, in CSV and
TSV `choice1`, `choice2`, ..., the last of which may be empty. `label` is a class; with choices, the
index of the right one, from 0; or a score, if all labels are numbers and some have a fraction.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np

from gpt1_keras.cli import note
from gpt1_keras.examples import Examples, as_column
from gpt1_keras.labelled_files import (
    CHOICES,
    LABEL,
    BadRows,
    Row,
    TableOptions,
    as_label,
    as_number,
    numbers_of_labels,
    open_table,
    read_rows,
    shortened,
    shown_names,
    summary,
    tell_of_numbers_as_classes,
    use_decimal_points,
    use_one_spelling,
    with_labels,
    with_texts,
)
from training.datasets.paper_datasets import (
    CLASSIFICATION,
    MULTIPLE_CHOICE,
    SIMILARITY,
    TfdsDataset,
)

if TYPE_CHECKING:
    from gpt1_keras.tasks.task import Task

_Part: TypeAlias = tuple[list[Row], np.ndarray]  # of the examples: rows, and their labels

_MOST_BINS = 10  # of scores
_EXAMPLES_PER_BIN = 20

_KINDS = {
    ("text",): CLASSIFICATION,
    ("premise", "hypothesis"): CLASSIFICATION,
    ("text1", "text2"): SIMILARITY,
    ("context", "question", CHOICES): MULTIPLE_CHOICE,
    ("context", CHOICES): MULTIPLE_CHOICE,
}
_SCORE_METRICS = ("pearson", "spearman")
_MOST_SCORES = 10_000  # integers in a range of scores


def held_back(
    texts: Iterable[Sequence[object]], labels: np.ndarray, share: float, seed: int
) -> np.ndarray:
    """Chooses which examples are held back: about the same share of each label.

    At least one example of each label is held back and one is left, if there are two with different
    texts; otherwise all are left. Scores are taken by quantiles. Examples whose texts differ
    in case and white space alone stay together.

    Args:
        labels: array `[examples]`: indices of classes or choices, or float scores.
        share: above 0 and below 1.

    Returns:
        bool array `[examples]`.
    """
    if np.issubdtype(labels.dtype, np.floating):
        bins = min(_MOST_BINS, max(1, len(labels) // _EXAMPLES_PER_BIN))
        labels = np.digitize(labels, np.quantile(labels, np.linspace(0, 1, bins + 1)[1:-1]))
    numbers: dict[tuple[str, ...], int] = {}  # of groups of the same texts
    groups = np.array([numbers.setdefault(_plain(each), len(numbers)) for each in texts])
    first = np.unique(groups, return_index=True)[1]  # the example that stands for its group
    sizes = np.bincount(groups)
    order = np.random.default_rng(seed).permutation(len(first))
    is_held = np.zeros(len(first), bool)
    for label in np.unique(labels[first]):
        members = order[labels[first[order]] == label]
        middles = np.cumsum(sizes[members]) - sizes[members] / 2
        count = int(np.sum(middles < share * sizes[members].sum()))
        is_held[members[: min(max(count, 1), len(members) - 1)]] = True
    return is_held[groups]


def _plain(texts: Sequence[object]) -> tuple[str, ...]:
    """Returns texts without case and white space, which tell no examples apart."""
    return tuple(" ".join(str(text).casefold().split()) for text in texts)


@dataclasses.dataclass(frozen=True)
class EarlierFiles:
    """The files that a classifier has learned from before it now learns from more.

    Attributes:
        class_names: in the order of its outputs.
        train: paths of the files.
        table: which table of these files is read.
        validation: path of the examples that it has not learned from, on which its best epoch was
            chosen, and which table of it is read; None if there is none.
    """

    class_names: list[str]
    train: Sequence[str]
    table: TableOptions
    validation: tuple[str, TableOptions] | None


@dataclasses.dataclass(frozen=True)
class UserFiles:
    """Files as a data set, with the attributes of `TfdsDataset` that models need.

    Attributes:
        paths: dict from `"train"`, `"validation"` or `"test"` to lists of paths.
        table: which table of the files is read.
        kind, fields, metrics, score_range, glue_file: as in
            `training.datasets.paper_datasets.TfdsDataset`.
        class_names: None without classes.
        share: what `training.datasets.user_files` holds back of each train file, if there is
            no validation file.
        seed: of that choice.
        summary: of the train files, in lines.
        earlier: what the model has learned from before; it comes first in both splits.
    """

    paths: dict[str, list[str]]
    table: TableOptions
    kind: str
    fields: dict[str, str]
    metrics: tuple[str, ...]
    score_range: tuple[int, int] | None
    class_names: list[str] | None
    share: float = 0.0
    seed: int = 0
    summary: Sequence[str] = ()
    earlier: EarlierFiles | None = None
    glue_file: None = None

    def after(self, earlier: EarlierFiles) -> Self:
        """Returns the same files after earlier ones; classes that are new follow the known ones."""
        known = {as_label(name).lower() for name in earlier.class_names}
        new = [name for name in self.class_names or () if as_label(name).lower() not in known]
        again = {os.path.abspath(path) for path in earlier.train}
        train = [path for path in self.paths["train"] if os.path.abspath(path) not in again]
        return dataclasses.replace(
            self,
            paths={**self.paths, "train": train},
            class_names=[*earlier.class_names, *new],
            earlier=earlier,
        )

    def read(self, role: str, tell: Callable[[str], None] = note) -> Examples:
        """Reads a file's examples, byte strings, all labelled; texts and labels are checked."""
        if role != "train" and role in self.paths:
            return self._examples(role, [self._read(path, tell) for path in self.paths[role]])
        return self._examples(role, self._sides(tell)[role == "validation"])

    def read_splits(self, tell: Callable[[str], None] = note) -> tuple[Examples, Examples]:
        """Reads what a model learns from and what is to validate it; no file is read twice.

        `tell` is called with how the files are read, and then with their summary.
        """
        train, held_back = self._sides(tell)
        for line in self.summary:
            tell(line)
        if "validation" in self.paths:
            return self._examples("train", train), self.read("validation", tell)
        return self._examples("train", train), self._examples("validation", held_back)

    def _examples(self, role: str, parts: Sequence[_Part]) -> Examples:
        rows = [row for part, _ in parts for row in part]
        labels = np.concatenate([labels for _, labels in parts])
        return Examples(
            {field: as_column([_encoded(row[field]) for row in rows]) for field in self.fields},
            labels,
            indices=np.arange(len(labels)),
            class_names=self.class_names,
            source=", ".join(self.paths.get(role) or self.paths["train"]),
        )

    def _sides(self, tell: Callable[[str], None]) -> tuple[list[_Part], list[_Part]]:
        """Returns the examples of the train files to learn from, and those that are held back.

        What was held back from an earlier run still is. A text that is in several files is held
        back from all of them or from none.
        """
        if "validation" in self.paths:  # nothing is held back
            parts = self._earlier(tell)
            return parts + [self._read(path, tell) for path in self.paths["train"]], []
        sides: dict[tuple[str, ...], bool] = {}  # whether texts are held back
        train: list[_Part] = []
        held_back: list[_Part] = []
        if self.earlier is not None and self.earlier.validation is not None:
            path, table = self.earlier.validation
            rows, labels = self._read(path, keep_quiet, table)
            sides = dict.fromkeys(map(self._plain, rows), True)
            held_back.append((rows, labels))
        for rows, labels in self._earlier(tell):
            for row in rows:
                sides.setdefault(self._plain(row), False)
            train.append(self._on_side(rows, labels, sides, False))
        for path in self.paths["train"]:
            rows, labels = self._read(path, tell)
            held = self._choose(path, rows, labels, tell)
            for row, is_held in zip(rows, held):
                sides.setdefault(self._plain(row), bool(is_held))
            train.append(self._on_side(rows, labels, sides, False))
            held_back.append(self._on_side(rows, labels, sides, True))
        return train, held_back

    def _earlier(self, tell: Callable[[str], None]) -> list[_Part]:
        if self.earlier is None:
            return []
        return [self._read(path, tell, self.earlier.table) for path in self.earlier.train]

    def _read(
        self, path: str, tell: Callable[[str], None], table: TableOptions | None = None
    ) -> _Part:
        """Reads a file's examples. `table` is that of a file of an earlier run."""
        options = self.table if table is None else table
        rows = read_rows(path, wanted=[(*self.fields, LABEL)], tell=tell, **options)
        rows = with_labels(with_texts(rows, self.fields, path, tell), path, tell)
        _check_rows(path, rows, self.fields)
        use_decimal_points(rows, path, self.class_names, tell)
        use_one_spelling(rows, path, self.class_names, tell)
        if self.class_names is not None and path in self.paths.get("train", ()):
            tell_of_numbers_as_classes(self.class_names, path, tell)
        return rows, self._labels(path, rows)

    def _on_side(
        self,
        rows: list[Row],
        labels: np.ndarray,
        sides: Mapping[tuple[str, ...], bool],
        is_held_back: bool,
    ) -> _Part:
        chosen = [sides[self._plain(row)] == is_held_back for row in rows]
        return list(itertools.compress(rows, chosen)), labels[np.array(chosen, bool)]

    def _plain(self, row: Row) -> tuple[str, ...]:
        """Returns a row's texts as they are compared, in any order if it does not matter."""
        texts = _plain([row[field] for field in self.fields])
        return tuple(sorted(texts)) if self.kind == SIMILARITY else texts

    def _choose(
        self, path: str, rows: list[Row], labels: np.ndarray, tell: Callable[[str], None]
    ) -> np.ndarray:
        """Chooses which rows of a train file are held back."""
        found = held_back(map(self._plain, rows), labels, self.share, self.seed)
        if not found.any() and self.earlier is None:
            raise ValueError(
                f"{path} has no label with two examples of different texts, one of which could be "
                "held back. Give --validation."
            )
        tell(
            f"{found.sum():,} of {len(found):,} examples of {path} are held back to choose the "
            "best epoch on, as there is no --validation."
        )
        if self.class_names is not None:
            left = np.setdiff1d(labels, labels[found])
            if len(left):
                names = [self.class_names[number] for number in left]
                tell(f"No example of {shown_names(names)} is held back, as there are too few.")
        return found

    def _labels(self, path: str, rows: list[Row]) -> np.ndarray:
        choices = CHOICES if self.kind == MULTIPLE_CHOICE else None
        numbers = numbers_of_labels(rows, path, self.class_names, self.score_range, choices)
        return np.array(numbers, np.int32 if self.score_range is None else np.float32)


Dataset = TfdsDataset | UserFiles  # what a model is fine-tuned on


def find_user_files(
    train: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    validation: str | os.PathLike[str] | None,
    table: TableOptions | None = None,
    share: float = 0.2,
    seed: int = 0,
    score_range: tuple[int, int] | None = None,
) -> UserFiles:
    """Finds out from the train files' columns and labels what kind of data set the files are.

    Args:
        train: one file, or several with the same fields.
        table: which table of the files is read.
        score_range: the least and the greatest score, if labels are scores; by default, they are if
            all are numbers and some have a fraction.
        share, seed: as for `training.datasets.user_files.held_back`.
    """
    files = [str(train)] if isinstance(train, (str, os.PathLike)) else [str(path) for path in train]
    shown = ", ".join(files)
    wanted = [(*names, LABEL) for names in _KINDS]
    rows: list[Row] = []
    fields: tuple[str, ...] = ()
    options = table or TableOptions()
    for path in files:
        opened = open_table(path, wanted=wanted, **options)
        fields = opened.fields[:-1]
        wanted = [opened.fields]  # as the first file has them
        found = with_labels(with_texts(list(opened), fields, path), path)
        _check_rows(path, found, fields)
        use_decimal_points(found, path)
        rows += found
    use_one_spelling(rows, shown)
    kind = _KINDS[fields]
    labels = [str(row[LABEL]) for row in rows]
    numbers = [number for number in map(as_number, labels) if number is not None]
    is_score = any(number % 1 for number in numbers) and score_range is None
    if is_score and len(numbers) < len(labels) and kind != MULTIPLE_CHOICE:
        bad = BadRows(shown)
        for row in rows:
            if as_number(str(row[LABEL])) is None:
                bad.add(
                    row.line,
                    f"has the label {row[LABEL]!r}, which is no number; others have a fraction, so "
                    "all are scores",
                )
        bad.refuse()
    metrics: tuple[str, ...] = ("accuracy",)
    class_names = None
    if kind == MULTIPLE_CHOICE:
        if score_range is not None:
            raise ValueError(f"{shown} has choices; score_range is for scores. Leave it out.")
    elif is_score or score_range is not None:
        metrics = _SCORE_METRICS
        low, high = score_range or (math.floor(min(numbers)), math.ceil(max(numbers)))
        if high - low > _MOST_SCORES:
            raise ValueError(
                f"{shown} has scores from {low} to {high}, and the model has an output for each "
                f"integer of their range. Scale them to at most {_MOST_SCORES}."
            )
        score_range = low, high
    else:
        class_names = sorted(set(labels))
        if len(numbers) == len(labels):
            # In another order, a class's number might be another one's index: see `ClassHead`.
            class_names.sort(key=float)
    paths = {"train": files}
    if validation is not None:
        paths["validation"] = [str(validation)]
    names = {field: field for field in fields}
    lines = [f"{shown}: {line}" for line in summary(rows, fields, class_names)]
    return UserFiles(
        *(paths, options, kind, names, metrics, score_range, class_names, share, seed, lines)
    )


def user_files_for(
    model: "Task",
    kind: str,
    path: str | os.PathLike[str],
    table: TableOptions,
) -> UserFiles:
    """Returns a file to evaluate a fine-tuned model on, as a data set with the split `"test"`."""
    score_range = getattr(model, "score_range", None)
    return UserFiles(
        paths={"test": [str(path)]},
        table=table,
        kind=kind,
        fields={name: name for name in model.preprocessor.fields},
        metrics=_SCORE_METRICS if score_range else ("accuracy",),
        score_range=score_range,
        class_names=getattr(model, "class_names", None),
    )


def _check_rows(path: str | os.PathLike[str], rows: list[Row], fields: Iterable[str]) -> None:
    """Raises ValueError, with lines, for texts or labels that are lists."""
    bad = BadRows(path)
    for row in rows:
        wrong = [
            name for name in (*fields, LABEL) if isinstance(row[name], list) != (name == CHOICES)
        ]
        if wrong:
            expected = "a list of texts" if wrong[0] == CHOICES else "one text"
            received = shortened(repr(row[wrong[0]]))
            bad.add(row.line, f"{wrong[0]} must be {expected}. Received: {received}")
    bad.refuse()


def keep_quiet(notice: str) -> None:
    """Says nothing."""


def _encoded(text: str | list[str]) -> bytes | np.ndarray:
    """Returns a text as bytes, or texts as an array of bytes."""
    return text.encode() if isinstance(text, str) else as_column([each.encode() for each in text])

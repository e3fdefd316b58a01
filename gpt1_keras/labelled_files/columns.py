"""Finds the columns of a table: those that the user names, or those with known names."""

import contextlib
import os
import pathlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from gpt1_keras.cli import option
from gpt1_keras.files import read_json
from gpt1_keras.labelled_files.rows import CHOICES, LABEL, shown_names

USUAL_COLUMNS = "usual_columns"  # in a run's result.json: those of the run that it goes on from
_OTHER_NAMES = {  # that people give to these columns, as `_plain` makes them
    "text": (
        "texts", "sentence", "review", "reviewtext", "comment", "commenttext", "content", "message",
        "body", "document", "tweet", "feedback", "utterance",
    ),
    LABEL: (
        "labels", "class", "category", "sentiment", "rating", "stars", "score", "target", "intent",
        "topic",
    ),
    "context": ("passage", "article"),
    CHOICES: ("options", "endings", "answers"),
}  # fmt: skip
_CHOICE = re.compile(r"choice([0-9]+)")
_MAPPING = re.compile(r",(?=\w+=)")  # between two; a column's name may have commas


class TableOptions(TypedDict, total=False):
    """Which table of a file is read, and which columns of it: arguments of `open_table`."""

    columns: Mapping[str, str] | None
    sheet: str | None
    header_row: int | None
    usual: Mapping[str, str] | None


def table_options(options: Any, model: str | os.PathLike[str] | None = None) -> TableOptions:
    """Returns what a program's options --columns, --sheet and --header-row say.

    Args:
        model: the run or preset whose columns are usual; see `columns_of_run`.

    Raises:
        ValueError: see `parse_columns`.
    """
    return {
        "columns": parse_columns(options.columns),
        "sheet": options.sheet,
        "header_row": options.header_row,
        "usual": {} if model is None else columns_of_run(model),
    }


def columns_option() -> Any:
    """Returns the option `--columns` of a dataclass of options; see `parse_columns`."""
    return option(
        "which columns of the file to read, such as text=Comment,label=Sentiment (default: those "
        "of these names or of similar ones)",
        None,
        metavar="NAME=COLUMN,...",
    )


def sheet_option() -> Any:
    """Returns the option `--sheet` of a dataclass of options."""
    return option(
        "the sheet of a workbook to read (default: the first with these columns)",
        None,
        metavar="NAME",
    )


def header_row_option() -> Any:
    """Returns the option `--header-row` of a dataclass of options."""
    return option(
        "the row of a workbook, or the line of a .csv or .tsv, that names the columns, from 1 "
        "(default: the first that does)",
        None,
        metavar="N",
    )


def parse_columns(text: str | None) -> dict[str, str]:
    """Returns what an argument such as `text=Comment,label=Sentiment` says, as a dict.

    Raises:
        ValueError: it has another form, or a name or a column occurs twice.
    """
    pairs = [pair.partition("=") for pair in _MAPPING.split(text)] if text else []
    columns = {name.strip(): column.strip() for name, _, column in pairs}
    is_once = len(columns) == len(set(columns.values())) == len(pairs)
    if not is_once or not all(columns) or not all(columns.values()):
        raise ValueError(
            "columns must be NAME=COLUMN, or several with commas between them and each name and "
            f"column once. Received: {text}."
        )
    return columns


def columns_of_run(model: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the columns that a run of `gpt1 finetune`, or one before it, was told to learn from.

    Args:
        model: the run's folder or its preset; there are none for others.
    """
    for folder in (pathlib.Path(model), pathlib.Path(model).parent):
        with contextlib.suppress(OSError, ValueError, TypeError):
            result = read_json(folder / "result.json")
            return parse_columns(result.get("columns") or result.get(USUAL_COLUMNS))
    return {}


def fields_of_run(model: str | os.PathLike[str]) -> list[str]:
    """Returns the texts that a fine-tuned model reads, such as `["text"]`.

    Args:
        model: a run of `gpt1 finetune`, or its preset; there are none for others.
    """
    for folder in (pathlib.Path(model), pathlib.Path(model, "best")):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            task = read_json(folder / "task.json")
            return [*task["config"]["preprocessor"]["config"]["fields"]]
    return []


def is_choice(name: str) -> bool:
    """Returns whether a name is `choice1`, `choice2` or so on."""
    return _CHOICE.fullmatch(name) is not None


def choice_order(names: Iterable[str], path: str | os.PathLike[str]) -> list[str]:
    """Returns those of the names that are `choice1`, `choice2` and so on, in order.

    Raises:
        ValueError: one of them is missing, or there is also a column `choices`.
    """
    names = list(names)
    found = sorted(filter(is_choice, names), key=lambda name: int(name[6:]))
    expected = [f"choice{number}" for number in range(1, len(found) + 1)]
    if found != expected:
        raise ValueError(
            f"{path} has the columns {', '.join(found)}; expected {', '.join(expected)}."
        )
    if found and CHOICES in names:
        raise ValueError(f"{path} has both a column {CHOICES} and {', '.join(found)}.")
    return found


def is_known(name: str) -> bool:
    """Returns whether a column's name is one that this package reads, or a similar one."""
    plain = _plain(name)
    return (
        is_choice(plain)
        or plain in ("premise", "hypothesis", "text1", "text2", "question", *_OTHER_NAMES)
        or any(plain in others for others in _OTHER_NAMES.values())
    )


def named_columns(
    given: Mapping[str, str], wanted: Sequence[Collection[str]], usual: Mapping[str, str]
) -> set[str]:
    """Returns the columns that are named: those that are given, else the usual ones of any kind.

    The arguments are those of `find_columns`.
    """
    fields = {field for kind in wanted for field in kind}
    return {*given.values()} or {
        column for name, column in usual.items() if (CHOICES if is_choice(name) else name) in fields
    }


def find_columns(
    path: str | os.PathLike[str],
    columns: Sequence[str],
    given: dict[str, str],
    wanted: Sequence[Collection[str]],
    usual: Mapping[str, str],
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Finds the columns of a table that hold what is wanted.

    Args:
        path, columns: of the table, for messages; its columns' names.
        given: what the user says: dict from names to columns.
        wanted: for each kind of data that will do, its fields; none to take all columns as they
            are. The first whose fields are all there is taken, under these very names; or the only
            one whose fields are there under similar names.
        usual: dict from names to columns, which are taken for wanted fields where they are there.

    Returns `(columns, fields)`: `given`, and what was found besides; and the fields of that kind.

    Raises ValueError if a given column or fields are missing, or names fit several kinds or
    columns.
    """
    missing = sorted(set(given.values()) - set(columns))
    if missing:
        raise ValueError(
            f"{path} has no column {shown_names(missing)}; it has {shown_names(columns)}."
        )
    if not wanted:
        return dict(given), ()
    asked = {CHOICES if is_choice(name) else name for name in given}
    kinds = [fields for fields in wanted if asked <= {*fields, LABEL}]
    if not kinds:
        known = sorted({LABEL, *(field for fields in wanted for field in fields)})
        raise ValueError(f"{path} has nothing to be named {sorted(asked)}; expected of {known}.")
    fields_of_kinds = {field for fields in kinds for field in fields}
    given = given | {
        name: column
        for name, column in usual.items()
        if name not in given and column not in given.values()
        if column in columns and (CHOICES if is_choice(name) else name) in fields_of_kinds
    }
    asked = {CHOICES if is_choice(name) else name for name in given}
    free = [column for column in columns if column not in given.values()]
    found = []
    for fields in kinds:
        similar = _similar(free, [field for field in fields if field not in asked])
        if similar is not None:
            if all(name == column for name, column in similar.items()):
                return dict(given), tuple(fields)
            found.append((similar, tuple(fields)))
    largest = [
        (one, fields)
        for one, fields in found
        if not any({*one.values()} < {*more.values()} for more, _ in found)
    ]
    if len(largest) != 1:
        expected = "; or ".join(", ".join(fields) for fields in kinds)
        example = ",".join(f"{field}=COLUMN" for field in kinds[0])
        raise ValueError(
            f"{path} has the columns {shown_names(columns)}; expected {expected}. Say which are "
            f"meant: --columns {example}."
        )
    similar, chosen = largest[0]
    return {**given, **similar}, chosen


def _similar(columns: Sequence[str], fields: Collection[str]) -> dict[str, str] | None:
    """Returns the column of each field, by the same or a similar name; None if one has not one."""
    found: dict[str, str] = {}
    for field in fields:
        if field == CHOICES:
            numbered = [column for column in columns if is_choice(column)] or [
                column for column in columns if is_choice(_plain(column))
            ]
            found |= {_plain(column): column for column in numbered}
            if numbered:
                continue
        alike = (
            [column for column in columns if column == field]
            or [column for column in columns if _plain(column) == _plain(field)]
            or [column for column in columns if _plain(column) in _OTHER_NAMES.get(field, ())]
        )
        if len(alike) != 1:
            return None
        found[field] = alike[0]
    return found


def _plain(name: str) -> str:
    """Returns a name without case, spaces and punctuation."""
    return re.sub(r"[\W_]+", "", name).casefold()

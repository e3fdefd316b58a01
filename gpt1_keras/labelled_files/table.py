"""Tables of texts: rows of users' files, whatever their format."""

import collections
import datetime
import decimal
import itertools
import json
import math
import os
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from gpt1_keras.labelled_files.arrow_files import DatasetRecords, ParquetRecords
from gpt1_keras.labelled_files.columns import (
    choice_order,
    find_columns,
    is_choice,
    is_known,
    named_columns,
)
from gpt1_keras.labelled_files.delimited_files import DelimitedRecords
from gpt1_keras.labelled_files.header import HeaderSearch
from gpt1_keras.labelled_files.rows import CHOICES, BadRow, BadRows, Records, Row, shortened
from gpt1_keras.labelled_files.spreadsheet import SpreadsheetRecords
from gpt1_keras.labelled_files.text_files import COMPRESSED, JsonRecords, find_text

SUFFIXES = ".csv, .tsv, .jsonl, .parquet or .xlsx"
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_JSON_LINES, _PARQUET, _WORKBOOK = ".jsonl", ".parquet", ".xlsx"
_OTHER_WORKBOOKS = (".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_MOST_DEPTH = 100  # Python's parser of JSON takes almost a thousand, and its writer fewer
_SCALARS = (int, float, decimal.Decimal, datetime.date, datetime.time, datetime.timedelta)


class Table:
    """The rows of a file. Each iteration reads the file anew, in bounded memory.

    Iterating raises ValueError for a file without examples, and for bad rows: after the first of
    them, no more rows are yielded, but all are read, and the message tells the lines of ten. The
    arguments are those of `open_table`, and the file's rows, as its format has them.

    Attributes:
        path: of the file.
        columns: the keys of each row, in the file's order.
        fields: those of the wanted ones that the file has; without any wanted, none.
        file_columns: the names of the file's own columns, each once; `"column 3"` for one without a
            name, or `"column 3 (2)"` if another has that name.
        sources: dict from those keys to the names of the columns in the file, where they differ.
        notices: how the file was read, in words, where that is not as expected; how many blank rows
            it has comes last, after an iteration.
    """

    def __init__(
        self,
        path: pathlib.Path,
        records: Records,
        given: Mapping[str, str],
        wanted: Sequence[Collection[str]],
        nulls_are_blank: bool = False,
        usual: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        self._records = records
        self._nulls_are_blank = nulls_are_blank
        names = self.file_columns = _file_columns(path, records.columns)
        if wanted and not names:
            raise _no_examples(path)
        taken = set(names)
        found, self.fields = find_columns(path, names, dict(given), wanted, usual or {})
        key_of = {column: name for name, column in found.items()}
        taken |= found.keys()
        self._keys = [
            key_of.get(name) or (_other_name(f"{name} (unread)", taken) if name in found else name)
            for name in names
        ]
        self._choices = choice_order(self._keys, path)
        self.columns = [key for key in self._keys if not is_choice(key)]
        if self._choices:
            self.columns.insert(self._keys.index(self._choices[0]), CHOICES)
        self.sources = {
            key: column for key, column in zip(self._keys, records.columns) if key != column
        }
        strict = {*self.fields, *self._choices}
        self._strict = [not wanted or key in strict for key in self._keys]
        self.notices = [f"{path} {notice}." for notice in records.notices]
        said = {name: column for name, column in found.items() if given.get(name) != column}
        if any(name != column for name, column in said.items()):
            pairs = ", ".join(f"{name} from {column!r}" for name, column in said.items())
            self.notices.append(f"{path}: takes {pairs}. --columns can say otherwise.")
        self._opened = len(self.notices)

    def __iter__(self) -> Iterator[Row]:
        return (row for row, _ in self.with_cells())

    def with_cells(self) -> Iterator[tuple[Row, list[Any]]]:
        """Iterates like the table itself, with each row's values in all columns of the file."""
        bad = BadRows(self.path)
        blank = good = 0
        for line, cells in self._records:
            if isinstance(cells, BadRow):
                bad.add(line, cells.reason)
            elif all(map(self._is_blank, cells)):
                blank += 1
            else:
                row = self._row(line, cells)
                if isinstance(row, BadRow):
                    bad.add(line, row.reason)
                elif not bad:
                    good += 1
                    yield row, cells
        bad.refuse()
        if not good:
            raise _no_examples(self.path)
        del self.notices[self._opened :]
        if blank:
            rows = "row is" if blank == 1 else "rows are"
            self.notices.append(f"{self.path}: {blank:,} blank {rows} skipped.")

    def _is_blank(self, cell: Any) -> bool:
        if cell is None:
            return self._nulls_are_blank
        return isinstance(cell, str) and not cell.strip()

    def _row(self, line: int, cells: list[Any]) -> Row | BadRow:
        values: dict[str, str | list[str]] = {}
        for key, cell, is_strict in zip(self._keys, cells, self._strict):
            if isinstance(cell, str) and cell.isascii():  # as most are: nothing to check
                values[key] = cell
                continue
            name = self.sources.get(key, key)
            if _is_deeper(cell, _MOST_DEPTH):
                return BadRow(f"{name!r} holds lists or objects deeper than {_MOST_DEPTH} levels")
            value = cell if isinstance(cell, str) else _text(cell)
            if value is None and not is_strict:
                value = "" if cell is None else json.dumps(cell, default=str, ensure_ascii=False)
            if value is None:
                if cell is None and (is_choice(key) or self._nulls_are_blank):
                    value = ""
                else:
                    received = shortened(json.dumps(cell, default=str))
                    return BadRow(
                        f"{name!r} must be a text or a number, or a list of them. Received: "
                        f"{received}"
                    )
            for text in [value] if isinstance(value, str) else value:
                try:
                    text.encode()
                except UnicodeEncodeError:
                    return BadRow(f"{name!r} holds half of a surrogate pair, which is no text")
            values[key] = value
        if self._choices:
            texts = [str(values.pop(name)) for name in self._choices]
            count = max((number for number, text in enumerate(texts, 1) if text), default=0)
            if "" in texts[:count]:
                empty, last = self._choices[texts.index("")], self._choices[count - 1]
                return BadRow(
                    f"{empty} is empty, and {last} is not. Only the last choices may be empty"
                )
            values[CHOICES] = texts[:count]
        return Row(values, line)


def open_table(
    path: str | os.PathLike[str],
    columns: Mapping[str, str] | None = None,
    wanted: Sequence[Collection[str]] = (),
    nulls_are_blank: bool = False,
    *,
    sheet: str | None = None,
    header_row: int | None = None,
    usual: Mapping[str, str] | None = None,
) -> Table:
    """Opens a file of texts, labelled or not.

    Args:
        path: a `.csv` or `.tsv` file with columns separated by `,`, `;`, tabs or `|`; a `.jsonl`
            file; such a file compressed, as `.csv.gz`; a `.parquet` or `.xlsx` file; or a folder
            that Hugging Face's `Dataset.save_to_disk` wrote. Text is in UTF-8, in UTF-16 with its
            mark, or in Windows-1252. In a workbook, the sheet and the row that names the columns
            are found by the columns that are given or wanted, or else are those of the first table.
            In `.csv` and `.tsv`, it is the first row that is not blank, or one below titles and
            notes that has the columns that are given or wanted. The columns `choice1`, `choice2`,
            ..., in any order, become `choices`, and an example may leave the last of them empty.
        columns: dict from names to the file's columns, such as `{"text": "Comment"}`; a column of
            its own with such a name is then called `"text (unread)"`.
        wanted: for each kind of data that will do, the names of its columns; if they are not there,
            similar names are taken, if they leave no doubt. By default, all columns are taken as
            they are, and each value must be a text, a number, true or false, or a list of these;
            otherwise, only those of the wanted columns must.
        nulls_are_blank: whether null is an empty text where a text must be; otherwise it is a fault
            of its row. In a workbook, it always is.
        sheet: name of the sheet of a workbook.
        header_row: the number of the row of a workbook that names the columns, from 1; or the
            line of a `.csv` or `.tsv` file.
        usual: dict from names to the columns that similar files have, which are taken for wanted
            names where the file has them.

    Returns:
        A table. Its rows are dicts from column to str, or to a list of str, such as `choices`. A
        `label` is as `as_label` makes it.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file has another suffix or encoding, is damaged, or lacks a column.
    """
    path, given = pathlib.Path(path), columns or {}
    settings = given, wanted, nulls_are_blank, usual
    suffix = path.suffix.lower()
    if suffix in _OTHER_WORKBOOKS:
        raise ValueError(f"Open {path} in a spreadsheet and save it as .xlsx, which can be read.")
    if suffix != _WORKBOOK and sheet is not None:
        raise ValueError(f"sheet is for a .xlsx file. Received: {path}.")
    if path.is_dir():
        return Table(path, DatasetRecords(path), *settings)
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise FileNotFoundError(f"The file {path} {what}.")
    if suffix == COMPRESSED:
        suffix = path.with_suffix("").suffix.lower()
    if header_row is not None and suffix not in (_WORKBOOK, *_SEPARATORS):
        raise ValueError(f"header_row is for a .xlsx, .csv or .tsv file. Received: {path}.")

    def check(names: Sequence[str]) -> None:
        find_columns(path, _file_columns(path, names), dict(given), wanted, usual or {})

    names = named_columns(given, wanted, usual or {})
    header = HeaderSearch(check, names, bool(given or wanted), header_row)
    records: Records
    if path.suffix.lower() == _PARQUET:
        records = ParquetRecords(path)
    elif path.suffix.lower() == _WORKBOOK:
        return Table(path, SpreadsheetRecords(path, header, sheet), given, wanted, True, usual)
    elif suffix == _JSON_LINES:
        records = JsonRecords(find_text(path))
    elif suffix in _SEPARATORS:
        meant = {*given.values(), *(field for fields in wanted for field in fields)}
        records = DelimitedRecords(
            find_text(path),
            _SEPARATORS[suffix],
            lambda name: name.strip() in meant or is_known(name),
            header,
        )
    else:
        raise ValueError(
            f"A file of examples ends in {SUFFIXES}, or in one of the first three and .gz. "
            f"Received: {path}."
        )
    return Table(path, records, *settings)


def read_rows(
    path: str | os.PathLike[str],
    columns: Mapping[str, str] | None = None,
    wanted: Sequence[Collection[str]] = (),
    tell: Callable[[str], None] = lambda notice: None,
    *,
    sheet: str | None = None,
    header_row: int | None = None,
    usual: Mapping[str, str] | None = None,
) -> list[Row]:
    """Reads all rows of a file; see `open_table`. `tell` is called with each notice."""
    table = open_table(path, columns, wanted, sheet=sheet, header_row=header_row, usual=usual)
    rows = list(table)
    for notice in table.notices:
        tell(notice)
    return rows


def is_table(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path is one of a table, or of a file that `open_table` refuses as one."""
    path = pathlib.Path(path)
    suffix = path.with_suffix("").suffix if path.suffix.lower() == COMPRESSED else path.suffix
    known = (*_SEPARATORS, _JSON_LINES, _PARQUET, _WORKBOOK, *_OTHER_WORKBOOKS)
    return suffix.lower() in known or path.is_dir()


def _no_examples(path: pathlib.Path) -> ValueError:
    return ValueError(f"{path} has no examples.")


def _file_columns(path: pathlib.Path, names: Sequence[str]) -> list[str]:
    """Returns the names of columns, each once. Raises ValueError if a file has one twice."""
    stripped = [name.strip() for name in names]
    counts = collections.Counter(stripped)
    twice = sorted(name for name, count in counts.items() if name and count > 1)
    if twice:
        raise ValueError(f"{path} names several columns {', '.join(map(repr, twice))}.")
    taken = set(stripped)
    return [
        name or _other_name(f"column {number}", taken) for number, name in enumerate(stripped, 1)
    ]


def _other_name(name: str, taken: set[str]) -> str:
    """Returns a name, or with a number if it is taken, and takes it."""
    numbered = (f"{name} ({number})" for number in itertools.count(2))
    free = next(each for each in itertools.chain([name], numbered) if each not in taken)
    taken.add(free)
    return free


def _text(cell: Any) -> str | list[str] | None:
    """Returns a value, or a list of values, as text; None for others, such as null."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, list):
        texts = [None if isinstance(each, list) else _text(each) for each in cell]
        return [str(text) for text in texts] if None not in texts else None
    if isinstance(cell, _SCALARS) and not (isinstance(cell, float) and not math.isfinite(cell)):
        return str(cell)
    return None


def _is_deeper(cell: Any, levels: int) -> bool:
    """Returns whether lists and objects in a value are more than some levels deep."""
    if isinstance(cell, dict):
        cell = list(cell.values())
    if not isinstance(cell, (list, tuple)):
        return False
    return levels == 0 or any(_is_deeper(each, levels - 1) for each in cell)

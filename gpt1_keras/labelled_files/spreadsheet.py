"""Excel's workbooks: which sheet is read, which of its rows names the columns, and the rows."""

import dataclasses
import datetime
import itertools
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from gpt1_keras.labelled_files import spreadsheet_process
from gpt1_keras.labelled_files.header import MOST_ROWS_ABOVE, HeaderSearch, as_name
from gpt1_keras.labelled_files.rows import BadRow, shortened, shown_names
from gpt1_keras.labelled_files.text_files import most_bytes, too_large

_SPARE_MEMORY = 2**30  # that any workbook may take, besides a hundredfold of its size
_SECONDS, _BYTES_A_SECOND = 60, 2**17  # of a processor
_MOST_SHEETS = 5  # whose columns a message names
_OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # what a .xls file begins with, or an encrypted one
_OPEN_DOCUMENT = b"application/vnd.oasis.opendocument"


@dataclasses.dataclass(frozen=True)
class _Sheet:
    """A sheet's rows in the temporary file, and the first of those that have a value."""

    name: str
    start: int
    end: int
    width: int  # columns up to the last one with a value
    top: list[tuple[int, list[Any]]]

    def names(self, cells: Sequence[Any]) -> list[str]:
        """Returns a row as names of all columns."""
        return [as_name(cell) for cell in cells] + [""] * (self.width - len(cells))


class SpreadsheetRecords:
    """The rows of a sheet of a .xlsx file; see `Records`. They are kept in a temporary file.

    Cells are None, str, bool, int, float, or a date. A whole number is an int, however the sheet
    shows it. Hidden rows and columns are read.

    Another process reads the workbook, within bounds on its memory and time. On macOS it has no
    bound on its memory, and on Windows neither.

    Args:
        header: how the row that names the columns is found. The first sheet that has it is read.
        sheet: name of the only sheet to look at, which may be hidden; by default, all others.

    Raises:
        ValueError: it is damaged, protected by a password, or too large; or no sheet fits.
        OSError: the temporary file, or the workbook, cannot be read or written.
    """

    def __init__(self, path: pathlib.Path, header: HeaderSearch, sheet: str | None = None) -> None:
        self._rows = tempfile.TemporaryFile()
        found = _read(path, sheet, self._rows)
        if not found["sheets"]:
            expected = shown_names(found["names"])
            raise ValueError(
                f"{path} has no sheet {sheet or 'that is shown'!r}; it has {expected}."
            )
        sheets = self._sheets(found["sheets"])
        self.notices: list[str] = []
        self._sheet, self._header_row, self.columns = self._choose(path, sheets, header)
        for count, what in (
            (found["errors"], "errors, such as #N/A"),
            (found["formulas"], "formulas whose values are not stored"),
        ):
            if count:
                cells = "cell" if count == 1 else "cells"
                self.notices.append(f"has {count:,} {cells} with {what}: read as empty")

    def __iter__(self) -> Iterator[tuple[int, list[Any] | BadRow]]:
        width = len(self.columns)
        for line, cells in self._cells(self._sheet.start, self._sheet.end):
            if line > self._header_row:
                yield line, [*cells[:width], *[None] * (width - len(cells))]

    def _cells(self, position: int, end: int) -> Iterator[tuple[int, list[Any]]]:
        """Yields the rows between two positions of the file."""
        while position < end:
            self._rows.seek(position)  # as others may read it too
            line, *cells = json.loads(self._rows.readline())
            position = self._rows.tell()
            yield line, [_date(cell[0]) if isinstance(cell, list) else cell for cell in cells]

    def _sheets(self, found: Sequence[dict[str, Any]]) -> list[_Sheet]:
        sheets, start = [], 0
        for each in found:
            rows = ((line, cells) for line, cells in self._cells(start, each["end"]) if cells)
            top = list(itertools.islice(rows, MOST_ROWS_ABOVE))
            sheets.append(_Sheet(each["name"], start, each["end"], each["width"], top))
            start = each["end"]
        return sheets

    def _choose(
        self, path: pathlib.Path, sheets: Sequence[_Sheet], header: HeaderSearch
    ) -> tuple[_Sheet, int, list[str]]:
        """Returns the sheet that is read, the number of the row that names its columns, and these.

        The likeliest row of each sheet comes before others, and a sheet with a table before one
        with notes.
        """
        likely: list[tuple[_Sheet, int, list[str]]] = []
        others: list[tuple[_Sheet, int, list[str]]] = []
        for sheet in sheets:
            if header.row is None:
                rows = header.candidates(sheet.top)
            else:
                all_rows = self._cells(sheet.start, sheet.end)
                rows = [each for each in all_rows if each[0] == header.row]
            named = [(sheet, line, sheet.names(cells)) for line, cells in rows]
            likely += named[:1]
            others += named[1:]
        likely.sort(key=lambda each: each[0].top[-1][0] == each[1] or each[0].width == 1)
        if not likely:
            return sheets[0], header.row or 1, []
        for chosen in likely + others:
            try:
                header.check(chosen[2])
            except ValueError as error:
                if chosen is likely[0]:
                    refusal = error
            else:
                self._tell(sheets, *chosen[:2], [each for each in likely if each[2] == chosen[2]])
                return chosen
        (sheet, row, _), *rest = likely
        told = [
            f"{other.name!r} has {shown_names(names)}" for other, _, names in rest[:_MOST_SHEETS]
        ]
        if len(rest) > _MOST_SHEETS:
            told.append(f"and {len(rest) - _MOST_SHEETS:,} more")
        if told or row > 1:
            beside = f"; of its other sheets, {', '.join(told)}" if told else ""
            raise ValueError(f"{refusal} That is row {row} of the sheet {sheet.name!r}{beside}.")
        raise refusal

    def _tell(
        self, sheets: Sequence[_Sheet], sheet: _Sheet, row: int, alike: Sequence[tuple[Any, ...]]
    ) -> None:
        """Tells which sheet is read, and from which row, if there is a choice."""
        if not sheets[1:] and row == 1:
            return
        others = f" of {shown_names([each.name for each in sheets])}" if sheets[1:] else ""
        same = [each[0].name for each in alike if each[0] is not sheet]
        left_out = f"; {shown_names(same)}, with the same columns, are not read" if same else ""
        self.notices.append(
            f"is read from the sheet {sheet.name!r}{others}, whose row {row} names the "
            f"columns{left_out}. --sheet and --header-row can say otherwise"
        )


def _date(text: str) -> datetime.date:
    """Returns a date, with a time if the text has one."""
    is_day = len(text) == len("2024-01-02")
    return (datetime.date if is_day else datetime.datetime).fromisoformat(text)


def _read(path: pathlib.Path, sheet: str | None, rows: Any) -> dict[str, Any]:
    """Lets another process read a workbook, and write its rows to a file."""
    import python_calamine

    with open(path, "rb") as file:
        start = file.read(100)
    if start.startswith(_OLD):
        raise ValueError(
            f"{path} is protected by a password, or is an old .xls file. Open it in a spreadsheet, "
            "remove the password, and save it as .xlsx."
        )
    if _OPEN_DOCUMENT in start:
        raise ValueError(f"{path} is an .ods file. Open it in a spreadsheet and save it as .xlsx.")
    folder = pathlib.Path(python_calamine.__file__).parents[1]
    size = path.stat().st_size
    most_memory, most_seconds = _SPARE_MEMORY + most_bytes(path), _SECONDS + size // _BYTES_A_SECOND
    limits = map(str, (most_bytes(path), most_memory, most_seconds))
    reader: list[str | pathlib.Path] = [sys.executable, "-I", "-S", spreadsheet_process.__file__]
    process = subprocess.run(
        [*reader, folder, path, sheet or "", *limits],
        stdin=subprocess.DEVNULL,
        stdout=rows,
        stderr=subprocess.PIPE,
    )
    *_, said = process.stderr.decode(errors="replace").strip().splitlines() or [""]
    status = process.returncode
    if status == 0:
        return json.loads(said)
    if status == spreadsheet_process.DAMAGED:
        raise ValueError(f"{path} is damaged, or no workbook: {shortened(said)}.")
    if status == spreadsheet_process.TOO_LARGE:
        raise too_large(path)
    if status < 0:  # a signal, which Windows has not
        is_slow = status == -signal.SIGXCPU
        taken = f"{most_seconds} seconds" if is_slow else f"{most_memory:,} bytes of memory"
        raise ValueError(
            f"{path} takes more than {taken} to read. Perhaps a cell is far away from all others, "
            "or many cells hold a long text. Name one sheet, or save it as .csv."
        )
    raise OSError(f"{path} cannot be read: {said}.")

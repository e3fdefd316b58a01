"""Excel's workbooks: the rows of the first sheet."""

import contextlib
import pathlib
import re
import zipfile
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from gpt1_keras.labelled_files.rows import BadRow
from gpt1_keras.labelled_files.text_files import most_bytes, too_large

_MOST_CELLS = 2**24  # the reader holds those of the smallest rectangle around all
_STRINGS = "xl/sharedStrings.xml"
_SHEETS = "xl/worksheets/"
_CELL = re.compile("([A-Z]{1,3})([0-9]{1,7})")
_PIECE_BYTES = 2**16


class SpreadsheetRecords:
    """The rows of a .xlsx file; see `Records`. All are in memory.

    A whole number has no ".0" and a date is as in ISO 8601, however the sheet shows them.

    Raises:
        ValueError: it is damaged, protected by a password, or too large.
    """

    def __init__(self, path: pathlib.Path) -> None:
        import python_calamine as calamine

        self.notices: list[str] = []
        try:
            errors = _check_size(path)
            with contextlib.closing(calamine.CalamineWorkbook.from_path(path)) as book:
                shown = [
                    sheet.name
                    for sheet in book.sheets_metadata
                    if sheet.typ == calamine.SheetTypeEnum.WorkSheet
                    and sheet.visible == calamine.SheetVisibleEnum.Visible
                ]
                sheet = book.get_sheet_by_name(shown[0])
                first = 0 if sheet.start is None else sheet.start[0]
                rows = list(enumerate(sheet.to_python(), first + 1))
        except (calamine.CalamineError, zipfile.BadZipFile, expat.ExpatError, LookupError) as error:
            raise ValueError(f"{path} is damaged, or protected by a password: {error}.") from None
        if errors:
            self.notices.append(f"has {errors:,} cells with errors, such as #N/A: read as empty")
        if len(shown) > 1:
            self.notices.append(f"has {len(shown)} sheets, of which {shown[0]!r} is read")
        self._rows = [(line, list(map(_cell, cells))) for line, cells in rows]
        self.columns: list[str] = []
        while self._rows and not self.columns:
            self.columns = [name.strip() for name in self._rows.pop(0)[1]]
            if not any(self.columns):
                self.columns = []
        while (
            self.columns
            and not self.columns[-1]
            and not any(cells[len(self.columns) - 1].strip() for _, cells in self._rows)
        ):
            self.columns.pop()

    def __iter__(self) -> Iterator[tuple[int, list[Any] | BadRow]]:
        for line, cells in self._rows:
            yield line, cells[: len(self.columns)]


def _cell(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def _check_size(path: pathlib.Path) -> int:
    """Returns how many cells hold an error, such as #N/A.

    Raises ValueError if reading the workbook would take much more memory than its size says: a few
    bytes may stand for a cell far away from all others, or repeat a long text.
    """
    most = most_bytes(path)
    errors = 0
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > most:
            raise too_large(path)
        strings = _Strings()
        if _STRINGS in archive.namelist():
            strings.read(archive, _STRINGS)
        for name in archive.namelist():
            if name.startswith(_SHEETS) and name.endswith(".xml"):
                sheet = _Sheet(strings.lengths)
                sheet.read(archive, name)
                if sheet.rows * sheet.columns > _MOST_CELLS:
                    raise ValueError(
                        f"{path} has a cell in row {sheet.rows:,} and one in column "
                        f"{sheet.columns:,}, which is too large a table. Save it as .csv."
                    )
                if sheet.characters > most:
                    raise too_large(path)
                errors += sheet.errors
    return errors


class _Part:
    """A part of a workbook, read piece by piece."""

    def read(self, archive: zipfile.ZipFile, name: str) -> None:
        """Reads the part of this name."""
        parser = expat.ParserCreate()
        parser.StartElementHandler = lambda tag, fields: self.start(tag.rpartition(":")[2], fields)
        parser.CharacterDataHandler = self.text
        with archive.open(name) as file:
            while piece := file.read(_PIECE_BYTES):
                parser.Parse(piece)
        parser.Parse(b"", True)

    def start(self, tag: str, fields: dict[str, str]) -> None:
        """Reads the start of an element."""

    def text(self, text: str) -> None:
        """Reads some of the text between elements."""


class _Strings(_Part):
    """The strings that cells share. `lengths` counts their characters."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def start(self, tag: str, fields: dict[str, str]) -> None:
        if tag == "si":
            self.lengths.append(0)

    def text(self, text: str) -> None:
        if self.lengths:
            self.lengths[-1] += len(text)


class _Sheet(_Part):
    """A sheet: its last row and column, the characters of its shared strings, and its errors."""

    def __init__(self, lengths: list[int]) -> None:
        self.rows = self.columns = self.characters = self.errors = 0
        self._lengths = lengths
        self._tag, self._kind, self._index = "", "", ""

    def start(self, tag: str, fields: dict[str, str]) -> None:
        self._add_string()
        self._tag = tag
        if tag == "c":
            self._kind = fields.get("t", "")
            self.errors += self._kind == "e"
            if found := _CELL.fullmatch(fields.get("r", "")):
                column = 0
                for letter in found[1]:
                    column = 26 * column + ord(letter) - ord("A") + 1
                self.columns = max(self.columns, column)
                self.rows = max(self.rows, int(found[2]))

    def text(self, text: str) -> None:
        if self._tag == "v" and self._kind == "s":
            self._index += text

    def _add_string(self) -> None:
        """Counts the string of the cell before."""
        if self._index.isdecimal() and int(self._index) < len(self._lengths):
            self.characters += self._lengths[int(self._index)]
        self._index = ""

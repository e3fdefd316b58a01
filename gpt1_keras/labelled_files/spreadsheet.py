"""Excel's workbooks: the rows of the first sheet."""

import contextlib
import pathlib
import re
import zipfile
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from gpt1_keras.labelled_files.rows import BadRow
from gpt1_keras.labelled_files.text_files import most_bytes, too_large

_FAULTS = (zipfile.BadZipFile, ElementTree.ParseError, LookupError)  # of a damaged file
_MOST_CELLS = 2**24  # the reader holds those of the smallest rectangle around all
_STRINGS = "xl/sharedStrings.xml"
_SHEETS = "xl/worksheets/"
_CELL = re.compile("([A-Z]{1,3})([0-9]{1,7})")


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
        except (calamine.CalamineError, *_FAULTS) as error:
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
    most, errors = most_bytes(path), 0
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > most:
            raise too_large(path)
        lengths: list[int] = []  # of the strings that cells share
        if _STRINGS in archive.namelist():
            for string in _elements(archive, _STRINGS, "si"):
                lengths.append(sum(map(len, string.itertext())))
        for part in archive.namelist():
            if not part.startswith(_SHEETS) or not part.endswith(".xml"):
                continue
            rows = columns = characters = 0
            for cell in _elements(archive, part, "c"):
                errors += cell.get("t") == "e"
                if found := _CELL.fullmatch(cell.get("r", "")):
                    rows, columns = max(rows, int(found[2])), max(columns, _number(found[1]))
                index = cell.findtext("{*}v", "") if cell.get("t") == "s" else ""
                if index.isdecimal() and int(index) < len(lengths):
                    characters += lengths[int(index)]
            if rows * columns > _MOST_CELLS:
                raise ValueError(
                    f"{path} has a cell in row {rows:,} and one in column {columns:,}, which is "
                    "too large a table. Save it as .csv."
                )
            if characters > most:
                raise too_large(path)
    return errors


def _elements(archive: zipfile.ZipFile, part: str, tag: str) -> Iterator[ElementTree.Element]:
    """Yields the elements of a tag, in any namespace; each is empty once the next is read."""
    with archive.open(part) as file:
        for _, element in ElementTree.iterparse(file):
            if element.tag.rpartition("}")[2] == tag:
                yield element
                element.clear()


def _number(letters: str) -> int:
    """Returns the number of a column from its letters, `A` to `ZZZ`."""
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number

"""Reads a workbook in a process of its own, which may take so much memory and time, and no more.

    python -I -S spreadsheet_reader.py FOLDER WORKBOOK MOST_BYTES MOST_MEMORY MOST_SECONDS

A few bytes of a workbook may stand for a cell far away from all others, or repeat a long text, and
the library that reads it then ends the process. `spreadsheet.py` starts this file by its path, so
it imports nothing but the standard library and python-calamine, which is in FOLDER.

It writes a line of JSON for each row below the columns' names: its number, and its cells as texts.
The last line of stderr is an object that says what was found, or why the exit status is not 0.
"""

import contextlib
import json
import os
import posixpath
import re
import sys
import zipfile
from typing import Any
from xml.etree import ElementTree

DAMAGED, TOO_LARGE = 3, 4  # exit statuses
_ERROR = re.compile(rb"""<(?:\w+:)?c\s[^>]*?\bt=["']e["']""")
_FORMULA = re.compile(  # without the value that Excel stores beside it
    rb"<(?:\w+:)?c\b[^>]*>\s*<(?:\w+:)?f\b[^>]*?(?:/>|>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:<(?:\w+:)?v\s*(?:/>|></(?:\w+:)?v>)\s*)?</(?:\w+:)?c>"
)


def main(folder: str, path: str, most_bytes: int, most_memory: int, most_seconds: int) -> None:
    """Reads a workbook. Raises SystemExit if it is damaged, or has more than `most_bytes`."""
    _limit(most_memory, most_seconds)
    sys.path.append(folder)
    import python_calamine as calamine

    try:
        with calamine.CalamineWorkbook.from_path(path) as book:
            shown = [
                sheet.name
                for sheet in book.sheets_metadata
                if sheet.typ == calamine.SheetTypeEnum.WorkSheet
                and sheet.visible == calamine.SheetVisibleEnum.Visible
            ]
            if not shown:
                raise LookupError("it has no sheet that is shown")
            columns = _write_rows(book.get_sheet_by_name(shown[0]), most_bytes)
    except (calamine.CalamineError, LookupError) as error:
        print(error, file=sys.stderr)
        sys.exit(DAMAGED)
    errors = formulas = 0
    with contextlib.suppress(zipfile.BadZipFile, LookupError, ElementTree.ParseError, ValueError):
        errors, formulas = _without_value(path, shown[0])
    found = {"columns": columns, "sheets": shown, "errors": errors, "formulas": formulas}
    print(json.dumps(found), file=sys.stderr)


def _limit(memory: int, seconds: int) -> None:
    """Limits this process, where the system knows such limits."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        if hard == resource.RLIM_INFINITY or value < hard:
            with contextlib.suppress(ValueError, OSError):  # macOS has no limit on memory
                resource.setrlimit(kind, (value, hard))  # beyond a hard one, it is killed


def _write_rows(sheet: Any, most_bytes: int) -> list[str]:
    """Writes the rows, and returns the columns' names, which the first row with a text has.

    Columns without a name at the end are left out, if all their cells are empty.
    """
    columns: list[str] = []
    width = total = 0
    with open(sys.stdout.fileno(), "wb") as output:
        for number, cells in enumerate(sheet.iter_rows(), 1):
            texts = list(map(_text, cells))
            used = next((n for n in range(len(texts), 0, -1) if texts[n - 1].strip()), 0)
            width = max(width, used)
            if columns:
                line = json.dumps([number, *texts], ensure_ascii=False).encode() + b"\n"
                total += len(line)
                if total > most_bytes:
                    sys.exit(TOO_LARGE)
                output.write(line)
            elif used:
                columns = texts
    return columns[:width]


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def _without_value(path: str, sheet: str) -> tuple[int, int]:
    """Counts a sheet's cells with errors, such as #N/A, and with formulas without a stored value.

    python-calamine shows both as empty.
    """
    with zipfile.ZipFile(path) as archive:
        parts = {name.lower(): name for name in archive.namelist()}
        book = ElementTree.fromstring(archive.read(parts["xl/workbook.xml"]))
        relations = ElementTree.fromstring(archive.read(parts["xl/_rels/workbook.xml.rels"]))
        targets = {each.get("Id"): each.get("Target", "") for each in relations}
        sheets = {each.get("name"): each.attrib for each in book.iterfind(".//{*}sheet")}
        [target] = [targets[value] for name, value in sheets[sheet].items() if name.endswith("}id")]
        part = posixpath.normpath(posixpath.join("/xl", target)).lower()
        xml = archive.read(parts[part.lstrip("/")])
    return sum(1 for _ in _ERROR.finditer(xml)), sum(1 for _ in _FORMULA.finditer(xml))


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
    except MemoryError:
        os.abort()  # as python-calamine does

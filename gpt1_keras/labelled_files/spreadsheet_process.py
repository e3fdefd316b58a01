"""Reads a workbook in a process of its own, with limits on its memory and time.

    python -I -S spreadsheet_process.py FOLDER WORKBOOK SHEET MOST_BYTES MOST_MEMORY MOST_SECONDS

A few bytes of a workbook may stand for a cell far away from all others, or repeat a long text, and
the library that reads it then ends the process. `spreadsheet.py` starts this file by its path, so
it imports nothing but the standard library and python-calamine, which is in FOLDER.

It reads the sheet that SHEET names, or all that are shown if it is empty. It writes a line of JSON
for each row: its number, and its cells, null for an empty one and a list of one text in ISO 8601
for a date. The last line of stderr is an object that says what was found, or why the exit status is
not 0.
"""

import contextlib
import datetime
import json
import os
import re
import sys
import zipfile
import zlib
from typing import Any, BinaryIO

DAMAGED, TOO_LARGE = 3, 4  # exit statuses
_ERROR = re.compile(rb"""<(?:\w+:)?c\s[^>]*?\bt=["']e["']""")
_FORMULA = re.compile(  # without the value that Excel stores beside it
    rb"<(?:\w+:)?c\b[^>]*>\s*<(?:\w+:)?f\b[^>]*?(?:/>|>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:<(?:\w+:)?v\s*(?:/>|></(?:\w+:)?v>)\s*)?</(?:\w+:)?c>"
)


def main(
    folder: str, path: str, name: str, most_bytes: int, most_memory: int, most_seconds: int
) -> None:
    """Reads a workbook. Raises SystemExit if it is damaged, or has more than `most_bytes`."""
    _limit(most_memory, most_seconds)
    sys.path.append(folder)
    import python_calamine as calamine

    try:
        with calamine.CalamineWorkbook.from_path(path) as book, open(1, "wb") as output:
            found = [
                each
                for each in book.sheets_metadata
                if each.typ == calamine.SheetTypeEnum.WorkSheet
                and (name or each.visible == calamine.SheetVisibleEnum.Visible)
            ]
            names = [each.name for each in found]
            sheets = []
            for each in names:
                if name in ("", each):
                    sheet = book.get_sheet_by_name(each)
                    end, width = _write_rows(sheet, output, most_bytes)
                    sheets.append({"name": each, "end": end, "width": width})
    except calamine.CalamineError as error:
        print(error, file=sys.stderr)
        sys.exit(DAMAGED)
    errors = formulas = 0
    # Parts that python-calamine did not need may be damaged, or packed in other ways.
    with contextlib.suppress(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError):
        errors, formulas = _without_value(path)
    described = {"names": names, "sheets": sheets, "errors": errors, "formulas": formulas}
    print(json.dumps(described), file=sys.stderr)


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


def _write_rows(sheet: Any, output: BinaryIO, most_bytes: int) -> tuple[int, int]:
    """Writes a sheet's rows; returns where they end, and how many columns have a value."""
    width = 0
    for number, cells in enumerate(sheet.iter_rows(), 1):
        values = list(map(_value, cells))
        used = next((n for n in range(len(values), 0, -1) if not _is_blank(values[n - 1])), 0)
        width = max(width, used)
        output.write(json.dumps([number, *values[:used]], ensure_ascii=False).encode() + b"\n")
        if output.tell() > most_bytes:
            sys.exit(TOO_LARGE)
    return output.tell(), width


def _value(value: Any) -> Any:
    """Returns a cell as JSON has it."""
    if value == "":
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, datetime.date):  # or with a time
        return [value.isoformat()]
    return value if isinstance(value, (bool, int, float)) else str(value)


def _is_blank(value: Any) -> bool:
    return value is None or isinstance(value, str) and not value.strip()


def _without_value(path: str) -> tuple[int, int]:
    """Counts the cells with errors, such as #N/A, and with formulas without a stored value.

    python-calamine shows both as empty.
    """
    errors = formulas = 0
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if "worksheets/" in name.lower() and name.lower().endswith(".xml"):
                xml = archive.read(name)
                errors += sum(1 for _ in _ERROR.finditer(xml))
                formulas += sum(1 for _ in _FORMULA.finditer(xml))
    return errors, formulas


if __name__ == "__main__":
    try:
        _, folder, path, name, *limits = sys.argv
        main(folder, path, name, *map(int, limits))
    except MemoryError:
        os.abort()  # as python-calamine does

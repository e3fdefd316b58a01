"""Excel's workbooks: the rows of the first sheet."""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from gpt1_keras.labelled_files import spreadsheet_reader
from gpt1_keras.labelled_files.rows import BadRow, shortened
from gpt1_keras.labelled_files.text_files import most_bytes, too_large

_SPARE_MEMORY = 2**30  # that any workbook may take, besides a hundredfold of its size
_SECONDS, _BYTES_A_SECOND = 60, 2**17  # of a processor


class SpreadsheetRecords:
    """The rows of a .xlsx file; see `Records`. They are kept in a temporary file.

    A whole number has no ".0" and a date is as in ISO 8601, however the sheet shows them.

    Another process reads the workbook, within bounds on its memory and time. On macOS it has no
    bound on its memory, and on Windows neither.

    Raises:
        ValueError: it is damaged, protected by a password, or too large.
        OSError: the temporary file, or the workbook, cannot be read or written.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._rows = tempfile.TemporaryFile()
        found = _read(path, self._rows)
        self.columns: list[str] = [name.strip() for name in found["columns"]]
        self.notices: list[str] = []
        for count, what in (
            (found["errors"], "errors, such as #N/A"),
            (found["formulas"], "formulas whose values are not stored"),
        ):
            if count:
                self.notices.append(f"has {count:,} cells with {what}: read as empty")
        if len(found["sheets"]) > 1:
            first = found["sheets"][0]
            self.notices.append(f"has {len(found['sheets'])} sheets, of which {first!r} is read")

    def __iter__(self) -> Iterator[tuple[int, list[Any] | BadRow]]:
        position = 0
        while True:
            self._rows.seek(position)  # as others may read it too
            text = self._rows.readline()
            position = self._rows.tell()
            if not text:
                return
            line, *cells = json.loads(text)
            yield line, cells[: len(self.columns)]


def _read(path: pathlib.Path, rows: Any) -> dict[str, Any]:
    """Lets another process read a workbook, and write its rows to a file."""
    import python_calamine

    folder = pathlib.Path(python_calamine.__file__).parents[1]
    size = path.stat().st_size
    most_memory, most_seconds = _SPARE_MEMORY + most_bytes(path), _SECONDS + size // _BYTES_A_SECOND
    limits = map(str, (most_bytes(path), most_memory, most_seconds))
    process = subprocess.run(
        [sys.executable, "-I", "-S", spreadsheet_reader.__file__, folder, path, *limits],
        stdin=subprocess.DEVNULL,
        stdout=rows,
        stderr=subprocess.PIPE,
    )
    *_, said = process.stderr.decode(errors="replace").strip().splitlines() or [""]
    status = process.returncode
    if status == 0:
        return json.loads(said)
    if status == spreadsheet_reader.DAMAGED:
        raise ValueError(f"{path} is damaged, or protected by a password: {shortened(said)}.")
    if status == spreadsheet_reader.TOO_LARGE:
        raise too_large(path)
    if status < 0:  # a signal, which Windows has not
        is_slow = status == -signal.SIGXCPU
        taken = f"{most_seconds} seconds" if is_slow else f"{most_memory:,} bytes of memory"
        raise ValueError(
            f"{path} takes more than {taken} to read, as where a cell is far away from all others "
            "or a long text stands in many. Save it as .csv."
        )
    raise OSError(f"{path} cannot be read: {said}.")

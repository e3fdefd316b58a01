"""The reader of users' own labelled texts: CSV, TSV and JSON Lines files."""

import csv
import json
import os
import pathlib
import re
from collections.abc import Iterator
from typing import TextIO

Row = dict[str, str | list[str]]

LABEL = "label"
CHOICES = "choices"
_CHOICE = re.compile(r"choice\d+")


class _Tsv(csv.excel_tab):
    quoting = csv.QUOTE_NONE  # the format has no quotes, so a text may start with one


_DIALECTS: dict[str, type[csv.Dialect]] = {".csv": csv.excel, ".tsv": _Tsv}


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """Reads a file of examples.

    Args:
        path: a `.csv`, `.tsv` or `.jsonl` file in UTF-8, with or without a byte-order mark. The
            first line of `.csv` and `.tsv` names the columns; those named `choice1`, `choice2`, ...
            become `choices`, without the empty ones. In `.tsv`, quotation marks are ordinary text.

    Returns:
        A dict for each example, from column to str, or to a list of str, as `choices`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file has another suffix or encoding, or no examples; or a line is damaged or
            has other columns than the first, in which case the message has its number.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"The file {path} does not exist.")
    if path.suffix not in (*_DIALECTS, ".jsonl"):
        raise ValueError(f"A file of examples ends in .csv, .tsv or .jsonl. Received: {path}.")
    read = _read_json_lines if path.suffix == ".jsonl" else _read_delimited
    try:
        # utf-8-sig, as the byte-order mark of a spreadsheet is not part of the first column's name.
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


def _read_json_lines(file: TextIO, path: pathlib.Path) -> Iterator[tuple[int, Row]]:
    """Reads the examples of a .jsonl file, each with its line's number."""
    for line, text in enumerate(file, start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: is not JSON: {error}.") from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {line}: must be an object. Received: {text.strip()}.")
        values = {
            name: [str(each) for each in value] if isinstance(value, list) else str(value)
            for name, value in row.items()
        }
        yield line, values


def _read_delimited(file: TextIO, path: pathlib.Path) -> Iterator[tuple[int, Row]]:
    """Reads the examples of a .csv or .tsv file, each with its line's number."""
    reader = csv.DictReader(file, dialect=_DIALECTS[path.suffix], strict=True)
    try:
        for cells in reader:
            if None in cells or None in cells.values():
                raise ValueError(
                    f"{path}, line {reader.line_num}: has another number of columns than the "
                    f"{len(reader.fieldnames or ())} that the first line names."
                )
            choices = [cells.pop(name) for name in list(cells) if _CHOICE.fullmatch(name)]
            row: Row = dict(cells)
            if choices:
                row[CHOICES] = [choice for choice in choices if choice]
            yield reader.line_num, row
    except csv.Error as error:
        # The inner reader's, as DictReader counts a line only when it has read all of it.
        raise ValueError(f"{path}, line {reader.reader.line_num}: {error}.") from None

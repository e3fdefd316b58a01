"""JSON Lines files."""

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from gpt1_keras.labelled_files.rows import BadRow, BadRows, shortened
from gpt1_keras.labelled_files.text_files import TextFile


class JsonRecords:
    """The rows of a .jsonl file, of which the first object names the columns; see `Records`."""

    def __init__(self, text: TextFile) -> None:
        self._text = text
        self.notices = list(text.notices)
        self.columns = []
        bad = BadRows(text.path)
        for line, row in self._objects():
            if isinstance(row, dict):
                self.columns = list(row)
                return
            bad.add(line, row.reason)
        bad.refuse()

    def __iter__(self) -> Iterator[tuple[int, list[Any] | BadRow]]:
        names = set(self.columns)
        for line, row in self._objects():
            if isinstance(row, BadRow):
                yield line, row
            elif row.keys() == names:
                yield line, [row[name] for name in self.columns]
            else:
                yield (
                    line,
                    BadRow(f"has the columns {sorted(row)}; the first example has {sorted(names)}"),
                )

    def _objects(self) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
        with self._text.open() as file:
            for line, text in enumerate(file, start=1):
                if text.strip():
                    yield line, _parsed(text)


def _parsed(text: str) -> dict[str, Any] | BadRow:
    try:
        row = json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return BadRow(f"is not JSON: {error}")
    if not isinstance(row, dict):
        return BadRow(f"must be an object. Received: {shortened(text.strip())}")
    for name in row:
        try:
            name.encode()
        except UnicodeEncodeError:
            return BadRow(f"{name!r} holds half of a surrogate pair, which is no text")
    return row


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes an object of names and values. Raises ValueError if a name occurs twice."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name occurs twice")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")

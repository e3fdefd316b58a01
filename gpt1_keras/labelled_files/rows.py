"""Rows of users' tables, their labels, and how bad rows are refused."""

import dataclasses
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

LABEL = "label"
CHOICES = "choices"
_WITHOUT_WIDTH = dict.fromkeys(map(ord, "\u200b\u2060\ufeff"))
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")
_SHOWN = 80  # characters of a damaged value
_MOST_NAMES = 20  # in a message
_MOST_BAD_ROWS = 10  # that a message names
_VISIBLE = re.compile("[!-~]")
# Of spaces, of control, format and private characters, and of marks without a letter.
_UNREADABLE = ("Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Mn")
_REPLACEMENT = "\ufffd"  # what was no character


class Row(dict[str, str | list[str]]):
    """An example: its values by column.

    `line` is the number of its last line in the file, or of its row in a Parquet file or a
    spreadsheet, from 1.
    """

    __slots__ = ("line",)  # there may be millions

    def __init__(self, values: dict[str, str | list[str]], line: int) -> None:
        super().__init__(values)
        self.line = line
        label = values.get(LABEL)
        if isinstance(label, str):
            self[LABEL] = as_label(label)


@dataclasses.dataclass(frozen=True)
class BadRow:
    """Stands for the cells of a row that cannot be read, and says why."""

    reason: str


class Records(Protocol):
    """The columns of a file and the cells of its rows, as its format holds them.

    Attributes:
        columns: the columns' names, as they stand in the file.
        notices: how the file was read, in words, where that is not as expected.
    """

    columns: list[str]
    notices: list[str]

    def __iter__(self) -> Iterator[tuple[int, list[Any] | BadRow]]:
        """Yields, for each row, its line and its cells, as many as columns."""


class BadRows:
    """Collects the faults of a file's rows, so that one error names them all."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._lines: dict[str, list[int]] = {}  # of the first bad rows, by what is wrong
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, line: int, reason: str) -> None:
        """Adds a row."""
        self._count += 1
        if self._count <= _MOST_BAD_ROWS:
            self._lines.setdefault(reason, []).append(line)

    def refuse(self) -> None:
        """Raises ValueError, with the first ten rows' lines, if there is a bad row."""
        if not self._count:
            return
        reasons = [
            f"line{'s' if lines[1:] else ''} {', '.join(map(str, lines))}: {reason}"
            for reason, lines in self._lines.items()
        ]
        if self._count > _MOST_BAD_ROWS:
            reasons.append(f"and {self._count - _MOST_BAD_ROWS:,} more such lines")
        raise ValueError(f"{self._path}, {'; '.join(reasons)}.")


def as_label(text: str) -> str:
    """Returns the form of a label that is compared, so that look-alikes are one class.

    White space around and between words, characters without a width, and the form of Unicode do not
    tell labels apart, nor does a whole number's ".0", which pandas adds in a column with gaps.
    """
    text = unicodedata.normalize("NFC", text.translate(_WITHOUT_WIDTH))
    text = " ".join(text.split())
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


def is_blank(text: str) -> bool:
    """Returns whether a text has nothing to read, and so gives no token.

    It is empty, or all of it is spaces, control characters, accents without a letter, or characters
    that are private or stand for damaged ones.
    """
    if _VISIBLE.search(text):  # as most have
        return False
    characters = unicodedata.normalize("NFD", text)
    return all(
        unicodedata.category(each) in _UNREADABLE or each == _REPLACEMENT for each in characters
    )


def blank_field(texts: Mapping[str, Any], is_blank: Callable[[Any], bool]) -> str:
    """Returns the first field of an example whose text is blank, or an empty str.

    Where the last is a list of choices, none of which may be blank, the others are one text: of a
    context and a question, either may be blank.

    Args:
        texts: by field, or lists of texts.
        is_blank: what is blank, for a reader of files (`is_blank`) or for a normalization.
    """
    blank = [
        field
        for field, value in texts.items()
        if (is_blank(value) if isinstance(value, (str, bytes)) else any(map(is_blank, value)))
    ]
    *shared, last = texts
    if shared and not isinstance(texts[last], (str, bytes)) and not {*shared} <= {*blank}:
        blank = [field for field in blank if field == last]
    return blank[0] if blank else ""


def with_texts(
    rows: Sequence[Row],
    fields: Iterable[str],
    path: str | os.PathLike[str],
    tell: Callable[[str], None] = lambda notice: None,
) -> list[Row]:
    """Returns the rows that have something to read, and tells how many are left out.

    They have no `blank_field`.

    Args:
        fields: the names of the texts that a model reads.
        path: of the rows' file.
        tell: is called with a notice.

    Raises:
        ValueError: no row is left.
    """
    fields = list(fields)
    found: list[Row] = []
    blank: list[Row] = []
    for row in rows:
        field = blank_field({name: row[name] for name in fields}, is_blank)
        (blank if field else found).append(row)
    if blank and not found:
        raise ValueError(f"{path}: all {len(rows):,} rows have a blank text.")
    if blank:
        what = "row with a blank text is" if len(blank) == 1 else "rows with a blank text are"
        where = f"line {blank[0].line}" if len(blank) == 1 else f"the first in line {blank[0].line}"
        tell(f"{path}: {len(blank):,} {what} left out, {where}.")
    return found


def shortened(text: str) -> str:
    """Returns a value as messages show it: cut to a readable length."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def shown_names(names: Sequence[str]) -> str:
    """Formats names for a message, at most 20 of them."""
    more = f", and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return f"{[shortened(name) for name in names[:_MOST_NAMES]]}{more}"

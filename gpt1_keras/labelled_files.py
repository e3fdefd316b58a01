"""The reader of users' own labelled texts: CSV, TSV and JSON Lines files, also compressed."""

import collections
import contextlib
import csv
import gzip
import io
import json
import math
import os
import pathlib
import re
import unicodedata
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn, TextIO

LABEL = "label"
CHOICES = "choices"
_CHOICE = re.compile(r"choice([0-9]+)")
_SEPARATOR = re.compile("[,;\t|]")  # of columns, as other programs write them
_COMPRESSED = ".gz"
_JSON_LINES = ".jsonl"
_LONGEST_FIELD = 2**31 - 1  # the most that csv takes on every system
_MOST_EXPANSION = 100  # the most times that a file may grow; texts grow 3 to 20 times
_SPARE_BYTES = 2**20  # that any file may have besides
_PIECE_BYTES = 2**16
_WITHOUT_WIDTH = dict.fromkeys(map(ord, "\u200b\u2060\ufeff"))
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")
_SHOWN = 80  # characters of a damaged value


class _Tsv(csv.excel_tab):
    quoting = csv.QUOTE_NONE  # the format has no quotes, so a text may start with one


_DIALECTS: dict[str, type[csv.Dialect]] = {".csv": csv.excel, ".tsv": _Tsv}


class Row(dict[str, str | list[str]]):
    """An example: its values by column.

    Attributes:
        line: the number of its last line in the file, from 1.
    """

    __slots__ = ("line",)  # there may be millions

    def __init__(self, values: dict[str, str | list[str]], line: int) -> None:
        super().__init__(values)
        self.line = line
        label = values.get(LABEL)
        if isinstance(label, str):
            self[LABEL] = as_label(label)


def as_label(text: str) -> str:
    """Returns a label as it is compared, so that those that look alike are one class.

    White space around and between words, characters without a width, and the form of Unicode do not
    tell labels apart, nor does a whole number's ".0", which pandas adds in a column with gaps.
    """
    text = unicodedata.normalize("NFC", text.translate(_WITHOUT_WIDTH))
    text = " ".join(text.split())
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """Reads a file of examples.

    Args:
        path: a `.csv`, `.tsv` or `.jsonl` file in UTF-8, with or without a byte-order mark; or such
            a file compressed, as `.csv.gz`. The first line of `.csv` and `.tsv` names the columns.
            The columns `choice1`, `choice2`, ..., in any order, become `choices`, and an example
            may leave the last of them empty. In `.tsv`, quotation marks are ordinary text. A value
            in `.jsonl` is a string, a number, true or false, or a list of these.

    Returns:
        A dict for each example, from column to str, or to a list of str, such as `choices`.
        A `label` is as `as_label` makes it.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file has another suffix or encoding, or no examples; or a line is damaged,
            or has other columns than the first. The message then has the line's number.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise FileNotFoundError(f"The file {path} {what}.")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    is_compressed = suffixes[-1:] == [_COMPRESSED]
    suffix = (suffixes[:-1] if is_compressed else suffixes)[-1:]
    if suffix not in [[each] for each in (*_DIALECTS, _JSON_LINES)]:
        raise ValueError(
            "A file of examples ends in .csv, .tsv or .jsonl, or in one of these and .gz. "
            f"Received: {path}."
        )
    try:
        # utf-8-sig: a spreadsheet's byte-order mark is not part of the first column's name.
        data = _decompressed(path) if is_compressed else open(path, "rb")
        with io.TextIOWrapper(data, encoding="utf-8-sig", newline="") as file:
            if suffix == [_JSON_LINES]:
                rows = list(_read_json_lines(file, path))
            else:
                rows = list(_read_delimited(file, path, _DIALECTS[suffix[0]]))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}.") from None
    if not rows:
        raise ValueError(f"{path} has no examples.")
    for row in rows:
        if row.keys() != rows[0].keys():
            raise ValueError(
                f"{path}, line {row.line}: has the columns {sorted(row)}; the first example has "
                f"{sorted(rows[0])}."
            )
    return rows


def _decompressed(path: pathlib.Path) -> BinaryIO:
    """Returns the content of a .gz file. ValueError if it is larger than a text's could be."""
    limit = _MOST_EXPANSION * path.stat().st_size + _SPARE_BYTES
    content = io.BytesIO()
    with gzip.open(path) as file:
        while piece := file.read(_PIECE_BYTES):  # all at once, it would be in memory three times
            content.write(piece)
            if content.tell() > limit:
                raise ValueError(
                    f"{path} has more than {limit:,} bytes of text, which is too many for it."
                )
    content.seek(0)
    return content


def _read_json_lines(file: TextIO, path: pathlib.Path) -> Iterator[Row]:
    """Reads the examples of a .jsonl file."""
    for line, text in enumerate(file, start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {line}: is not JSON: {error}.") from None
        if not isinstance(row, dict):
            received = shortened(text.strip())
            raise ValueError(f"{path}, line {line}: must be an object. Received: {received}.")
        values: dict[str, str | list[str]] = {}
        for name, value in row.items():
            try:
                several = isinstance(value, list)
                values[name] = [_as_text(each) for each in value] if several else _as_text(value)
                name.encode()
            except UnicodeEncodeError:
                raise ValueError(
                    f"{path}, line {line}: {name!r} holds half of a surrogate pair, which is no "
                    "text."
                ) from None
            except TypeError:
                raise ValueError(
                    f"{path}, line {line}: {name!r} must be a text or a number, or a list of them. "
                    f"Received: {shortened(json.dumps(value))}."
                ) from None
        yield Row(values, line)


def _read_delimited(file: TextIO, path: pathlib.Path, dialect: type[csv.Dialect]) -> Iterator[Row]:
    """Reads the examples of a .csv or .tsv file."""
    reader = csv.reader(file, dialect=dialect, strict=True)
    try:
        with _long_fields():
            columns = next(reader, [])
            choices = _check_columns(columns, path)
            for cells in reader:
                if not cells:
                    continue  # an empty line
                if len(cells) != len(columns):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: has another number of columns than the "
                        f"{len(columns)} that the first line names."
                    )
                values: dict[str, str | list[str]] = dict(zip(columns, cells))
                if choices:
                    texts = [str(values.pop(name)) for name in choices]
                    count = max((i for i, text in enumerate(texts, start=1) if text), default=0)
                    if "" in texts[:count]:
                        empty = choices[texts.index("")]
                        raise ValueError(
                            f"{path}, line {reader.line_num}: {empty} is empty, and "
                            f"{choices[count - 1]} is not. Only the last choices may be empty."
                        )
                    values[CHOICES] = texts[:count]
                yield Row(values, reader.line_num)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}.") from None


def _check_columns(columns: list[str], path: pathlib.Path) -> list[str]:
    """Checks the columns' names, and returns the columns of choices in order."""
    if len(columns) == 1 and (separator := _SEPARATOR.search(columns[0])):
        raise ValueError(
            f"{path} has one column, {shortened(columns[0])!r}, with {separator[0]!r} in its name. "
            "Columns are separated by commas in .csv and by tabs in .tsv."
        )
    counts = collections.Counter(columns)
    twice = sorted(name for name, count in counts.items() if name and count > 1)
    if twice:
        raise ValueError(f"{path} names several columns {', '.join(map(repr, twice))}.")
    found = sorted(filter(_CHOICE.fullmatch, columns), key=lambda name: int(name[6:]))
    expected = [f"choice{number}" for number in range(1, len(found) + 1)]
    if found != expected:
        raise ValueError(
            f"{path} has the columns {', '.join(found)}; expected {', '.join(expected)}."
        )
    if found and CHOICES in columns:
        raise ValueError(f"{path} has both a column {CHOICES} and {', '.join(found)}.")
    return found


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """Lets csv read fields of any length. Its limit, 131,072 characters, is the process's."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _as_text(value: Any) -> str:
    """Returns a value of JSON as text. Raises TypeError for others, such as null."""
    if not isinstance(value, (str, int, float)) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise TypeError
    text = str(value)
    text.encode()  # raises UnicodeEncodeError for half a surrogate pair
    return text


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes an object of names and values. Raises ValueError if a name occurs twice."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name occurs twice")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def shortened(text: str) -> str:
    """Returns a value as messages show it: cut, so that the rest of a message can be seen."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."

"""Files of text: their encoding, told from their bytes, compression, and JSON Lines."""

import codecs
import dataclasses
import gzip
import io
import json
import pathlib
import re
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn, TextIO, cast

from gpt1_keras.labelled_files.rows import BadRow, BadRows, shortened

COMPRESSED = ".gz"
_MOST_EXPANSION = 100  # the most times that a file may grow; texts grow 3 to 20 times
_SPARE_BYTES = 2**20  # that any file may have besides
_MARKS = {  # in this order, as one starts with another
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_UTF_8 = "utf-8-sig"  # a spreadsheet's byte-order mark is not part of the first column's name
_WINDOWS = "cp1252"
_NOT_UTF_8 = re.compile("[\udc80-\udcff]")  # what `surrogateescape` makes of such bytes


def most_bytes(path: pathlib.Path) -> int:
    """Returns how many bytes a compressed file may hold: more than any text's, but bounded."""
    return _MOST_EXPANSION * path.stat().st_size + _SPARE_BYTES


def too_large(path: pathlib.Path) -> ValueError:
    """Returns the error for a file that holds more than that."""
    return ValueError(
        f"{path} has more than {most_bytes(path):,} bytes of text, which is too many for it."
    )


@dataclasses.dataclass(frozen=True)
class TextFile:
    """A file of text, perhaps compressed, whose encoding in Python is known.

    Its notices are a line if the encoding is not one of Unicode.
    """

    path: pathlib.Path
    encoding: str
    notices: list[str]

    def open(self, errors: str = "strict") -> TextIO:
        """Opens the text, with its line ends as they are."""
        is_compressed = self.path.suffix.lower() == COMPRESSED
        data = _Decompressed(self.path) if is_compressed else open(self.path, "rb")
        return io.TextIOWrapper(cast(BinaryIO, data), self.encoding, errors, newline="")


class _Decompressed(gzip.GzipFile):
    """The content of a .gz file. Reading raises ValueError if it is larger than a text's."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(path)
        self._path, self._most = path, most_bytes(path)

    def read1(self, size: int = -1) -> bytes:
        data = super().read1(size)
        if self.tell() > self._most:
            raise too_large(self._path)
        return data


def find_text(path: pathlib.Path) -> TextFile:
    """Reads a file once to tell its encoding; all of it can then be read.

    It is UTF-8, with or without a byte-order mark; UTF-16 or UTF-32 with one; or Windows-1252, if
    it is not UTF-8, has fewer characters that would be than would not, and reads like a Western
    language. Raises ValueError if it is in another encoding, is damaged, or grows more than a
    hundredfold.
    """
    try:
        with TextFile(path, "latin-1", []).open() as file:
            start = file.read(4).encode("latin-1")
        encoding = next((_MARKS[mark] for mark in _MARKS if start.startswith(mark)), None)
        if encoding is None and b"\x00" in start[:2]:
            raise ValueError(
                f"{path} is not UTF-8, and has no byte-order mark that says what it is. Save it as "
                "UTF-8."
            )
        if encoding in (None, _UTF_8):
            return _utf_8_or_windows(path)
        found = TextFile(path, str(encoding), [])
        with found.open() as file:
            for _ in file:
                pass
        return found
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged, or not UTF-8: {error}.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}.") from None


def _utf_8_or_windows(path: pathlib.Path) -> TextFile:
    good = bad = first = 0  # characters beyond ASCII; bytes that are none; the line of the first
    letters = nulls = 0  # of ASCII, in the lines of those bytes
    with TextFile(path, _UTF_8, []).open("surrogateescape") as file:
        for number, line in enumerate(file, 1):
            if not line.isascii():
                escaped = len(_NOT_UTF_8.findall(line))
                bad += escaped
                good += sum(character > "\x7f" for character in line) - escaped
                if escaped:
                    first = first or number
                    letters += sum(each.isascii() and each.isalpha() for each in line)
                    nulls += line.count("\x00")
    if not bad:
        return TextFile(path, _UTF_8, [])
    if good >= bad:
        raise ValueError(f"{path} is not UTF-8: line {first} is damaged.")
    # As in Greek, Cyrillic, Chinese or Japanese, or in what is no text, and in no Western language.
    if bad > letters or nulls:
        raise ValueError(
            f"{path} is not UTF-8, and line {first} does not look like Windows-1252. Save it as "
            "UTF-8."
        )
    found = TextFile(path, _WINDOWS, [])
    with found.open() as file:
        for number, line in enumerate(file, 1):
            if number == first:
                shown = shortened(line.strip())
                found.notices.append(f"is not UTF-8, but Windows-1252: line {first} is {shown!r}")
    return found


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

"""Files of text: their encoding, told from their bytes, compression, CSV, TSV and JSON Lines."""

import codecs
import csv
import dataclasses
import gzip
import io
import itertools
import json
import pathlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
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
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_NO_SEPARATOR = "\x1f"  # which no text has
_DECLARED = re.compile(r'sep=([^\w"\r\n])[\r\n]*')  # Excel's first line
_DOUBLED = re.compile(r'(?:^|\t)"(?:[^"\t\r\n]|"")*""(?:[^"\t\r\n]|"")*"(?:\t|$)', re.MULTILINE)
_LONGEST_FIELD = 2**31 - 1  # the most that csv takes on every system
_SAMPLE = 2**22  # characters that tell the separator


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


@dataclasses.dataclass(frozen=True)
class _Layout:
    """How a file's rows are split into cells."""

    separator: str
    has_quotes: bool = True

    def split(self, lines: Iterable[str]) -> Iterator[tuple[int, list[str] | BadRow]]:
        """Yields each row's last line, and its cells."""
        reader = csv.reader(
            lines,
            delimiter=self.separator,
            quoting=csv.QUOTE_MINIMAL if self.has_quotes else csv.QUOTE_NONE,
            strict=True,
        )
        while True:
            before = csv.field_size_limit(_LONGEST_FIELD)  # 131,072 characters, of the process
            try:
                cells: list[str] | BadRow = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                cells = BadRow(str(error))
            finally:
                csv.field_size_limit(before)
            yield reader.line_num, cells


@dataclasses.dataclass(frozen=True)
class _Fit:
    """How well a layout fits a sample of a file."""

    layout: _Layout
    columns: list[str]
    good: int  # rows
    bad: int


class DelimitedRecords:
    """The rows of a .csv or .tsv file; see `Records`.

    The first row that is not blank names the columns. Columns without a name at the end are left
    out, if all their cells are empty. `separator` is the usual one of the file's suffix. Where a
    file can be split in several ways, `is_known` decides: whether a name is one that a wanted
    column may have. Raises ValueError if it cannot be told how the columns are separated.
    """

    def __init__(self, text: TextFile, separator: str, is_known: Callable[[str], bool]) -> None:
        self._text = text
        self.notices = list(text.notices)
        size = 0
        with text.open() as file:
            declared = _DECLARED.fullmatch(first := file.readline())
            lines = [] if declared else [first]
            for line in file:  # a single read would take memory for the largest sample
                lines.append(line)
                if (size := size + len(line)) > _SAMPLE:
                    break
            is_whole = not file.read(1)
        sample = "".join(lines)
        self._skipped = int(declared is not None)
        if declared:
            layouts = [_Layout(declared[1])]
        else:
            layouts = [_Layout(each) for each in _SEPARATORS] + [_Layout("\t", has_quotes=False)]
        names = _first_line(sample)
        likely = [layout for layout in layouts if layout.separator in names]
        fits = [_fitted(layout, sample, is_whole) for layout in likely]
        if not any(len(fit.columns) > 1 for fit in fits):
            fits = [_fitted(layout, sample, is_whole) for layout in layouts]
        fit = self._choose(fits, separator, sample, is_known)
        self._layout, self.columns = fit.layout, fit.columns
        if not self.columns:
            self._refuse_first_row()
        if self._layout.separator not in (separator, _NO_SEPARATOR):
            self.notices.append(f"has columns separated by {_shown(self._layout)}")

    def __iter__(self) -> Iterator[tuple[int, list[Any] | BadRow]]:
        with self._text.open() as file:
            rows = self._layout.split(itertools.islice(file, self._skipped, None))
            _columns(rows)
            for line, cells in rows:
                yield line + self._skipped, _fitting(cells, len(self.columns))

    def _refuse_first_row(self) -> None:
        """Raises ValueError if what should name the columns is damaged, not missing."""
        with self._text.open() as file:
            for line, cells in self._layout.split(itertools.islice(file, self._skipped, None)):
                if isinstance(cells, BadRow):
                    line += self._skipped
                    raise ValueError(f"{self._text.path}, line {line}: {cells.reason}.")

    def _choose(
        self, fits: list[_Fit], usual: str, sample: str, is_known: Callable[[str], bool]
    ) -> _Fit:
        """Returns the fit whose columns are the file's."""
        several = [fit for fit in fits if len(fit.columns) > 1]
        if not several:
            return _one_column(fits, usual, sample)
        best = _most(several, lambda fit: not fit.bad)
        best = _most(best, lambda fit: sum(map(is_known, fit.columns)))
        best = _most(best, lambda fit: fit.good / (fit.good + fit.bad) if fit.good else 0)
        if len({fit.layout.separator for fit in best}) > 1:
            found = " or by ".join(dict.fromkeys(_shown(fit.layout) for fit in best))
            raise ValueError(
                f"{self._text.path} can be read with columns separated by {found}. Write sep=; (or "
                "another) as its first line, or put texts with such characters in quotes."
            )
        return _most(best, lambda fit: fit.layout.has_quotes == _has_quotes(sample))[0]


def _one_column(fits: list[_Fit], usual: str, sample: str) -> _Fit:
    """Returns how to read a file whose first line has no separator.

    Separators in its lines are part of its texts, if none stands in quotes, and if not each line
    has the same number of them, as a table without names would.
    """
    fit = next((fit for fit in fits if fit.layout.separator == usual), fits[0])
    if not fit.bad or '"' in sample or any(fit.good == 0 for fit in fits):
        return fit
    return dataclasses.replace(fit, layout=_Layout(_NO_SEPARATOR, has_quotes=False))


def _fitted(layout: _Layout, sample: str, is_whole: bool) -> _Fit:
    """Returns how well a layout fits a sample, of which the last row may be cut off."""
    rows = layout.split(io.StringIO(sample, newline=""))
    columns = _columns(rows)
    good = bad = 0
    last = is_last_bad = False
    for _, cells in rows:
        fitting = _fitting(cells, len(columns))
        is_last_bad = isinstance(fitting, BadRow)
        last = isinstance(fitting, BadRow) or any(fitting)
        bad += is_last_bad
        good += last and not is_last_bad
    if last and not is_whole:
        bad, good = bad - is_last_bad, good - (not is_last_bad)
    return _Fit(layout, columns, good, bad)


def _columns(rows: Iterator[tuple[int, list[str] | BadRow]]) -> list[str]:
    """Returns the first row that is not blank, without the empty cells at its end."""
    for _, cells in rows:
        if isinstance(cells, BadRow):
            return []
        if any(map(str.strip, cells)):
            named = max(number for number, name in enumerate(cells, 1) if name.strip())
            return cells[:named]
    return []


def _fitting(cells: list[str] | BadRow, width: int) -> list[str] | BadRow:
    """Returns as many cells as columns. Others may be there if they are empty."""
    if isinstance(cells, BadRow) or len(cells) == width:
        return cells
    if not any(map(str.strip, cells)):
        return [""] * width
    if len(cells) > width and not any(map(str.strip, cells[width:])):
        return cells[:width]
    return BadRow(f"has another number of columns than the {width} that the first line names")


def _first_line(sample: str) -> str:
    """Returns what names the columns, or more if that may have line ends in quotes."""
    line = next((line for line in io.StringIO(sample) if line.strip()), "")
    return sample if line.count('"') % 2 else line


def _most(fits: list[_Fit], value: Callable[[_Fit], float]) -> list[_Fit]:
    """Returns the fits of the greatest value."""
    greatest = max(map(value, fits))
    return [fit for fit in fits if value(fit) == greatest]


def _has_quotes(sample: str) -> bool:
    """Returns whether quotation marks enclose cells of a TSV that can be read with and without.

    They do in its first line, or where one of them is doubled, as programs write those that are
    part of the text.
    """
    return sample.lstrip().startswith('"') or _DOUBLED.search(sample) is not None


def _shown(layout: _Layout) -> str:
    return _SEPARATORS.get(layout.separator, repr(layout.separator))


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

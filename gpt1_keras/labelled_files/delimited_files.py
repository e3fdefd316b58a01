"""CSV and TSV: how columns are separated, which row names them, and the rows."""

import csv
import dataclasses
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gpt1_keras.labelled_files.header import MOST_ROWS_ABOVE, HeaderSearch
from gpt1_keras.labelled_files.rows import BadRow
from gpt1_keras.labelled_files.text_files import TextFile

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_NO_SEPARATOR = "\x1f"  # which no text has
_DECLARED = re.compile(r'sep=([^\w"\r\n])[\r\n]*')  # Excel's first line
_DOUBLED = re.compile(r'(?:^|\t)"(?:[^"\t\r\n]|"")*""(?:[^"\t\r\n]|"")*"(?:\t|$)', re.MULTILINE)
_LONGEST_FIELD = 2**31 - 1  # the most that csv takes on every system
_SAMPLE = 2**22  # characters that tell the separator


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
    """How well a layout fits a sample of a file, from the row on that names the columns."""

    layout: _Layout
    header: int  # that row's last line in the sample; 0 if it is damaged
    columns: list[str]
    good: int  # rows
    bad: int


class DelimitedRecords:
    """The rows of a .csv or .tsv file; see `Records`.

    The first row that is not blank names the columns, unless one below it is what the caller looks
    for. Columns without a name at the end are left out, if all their cells are empty. `separator`
    is the usual one of the file's suffix. Where a file can be split in several ways, `is_known`
    decides: whether a name is one that a wanted column may have.

    Args:
        header: how the row that names the columns is found. Its number is one of a line.

    Raises:
        ValueError: it cannot be told how the columns are separated, or which row names them.
    """

    def __init__(
        self,
        text: TextFile,
        separator: str,
        is_known: Callable[[str], bool],
        header: HeaderSearch,
    ) -> None:
        self._text = text
        self.notices = list(text.notices)
        size = 0
        with text.open() as file:
            declared = _DECLARED.fullmatch(first := file.readline())
            self._skipped = int(declared is not None)
            lines = [] if declared else [first]
            if header.row is not None and header.row > 1:
                lines = []
                self._skipped = header.row - 1
                _skip(file, self._skipped - 1)
            for line in file:  # a single read would take memory for the largest sample
                lines.append(line)
                if (size := size + len(line)) > _SAMPLE:
                    break
            is_whole = not file.read(1)
        sample = "".join(lines)
        if declared:
            layouts = [_Layout(declared[1])]
        else:
            layouts = [_Layout(each) for each in _SEPARATORS] + [_Layout("\t", has_quotes=False)]
        names = _first_line(sample)
        likely = [layout for layout in layouts if layout.separator in names]
        fits = [_fitted(layout, sample, is_whole) for layout in likely]
        if not any(len(fit.columns) > 1 for fit in fits):
            fits = [_fitted(layout, sample, is_whole) for layout in layouts]
        best = _best(fits, separator, sample, is_known)
        below = _below(best[0], layouts, sample, is_whole, header)
        fit = self._only(_best(below, separator, sample, is_known) if below else best, sample)
        if below:
            self._tell_of_header(fit, header)
        self._layout, self._header, self.columns = fit.layout, fit.header, fit.columns
        if not self.columns:
            self._refuse_first_row()
        if self._layout.separator not in (separator, _NO_SEPARATOR):
            self.notices.append(f"has columns separated by {_shown(self._layout)}")

    def __iter__(self) -> Iterator[tuple[int, list[Any] | BadRow]]:
        with self._text.open() as file:
            _skip(file, self._skipped)
            for line, cells in self._layout.split(file):
                if line > self._header:
                    yield line + self._skipped, _fitting(cells, len(self.columns))

    def _tell_of_header(self, fit: _Fit, header: HeaderSearch) -> None:
        """Tells which line names the columns. Raises ValueError if they are not looked for."""
        line = fit.header + self._skipped
        try:
            header.check(fit.columns)
        except ValueError as error:
            raise ValueError(
                f"{error} They are named in line {line}; --header-row can name another."
            ) from None
        self.notices.append(
            f"has columns that line {line} names; what stands above is not read. --header-row can "
            "say otherwise"
        )

    def _refuse_first_row(self) -> None:
        """Raises ValueError if the row of the columns' names is damaged, not missing."""
        with self._text.open() as file:
            _skip(file, self._skipped)
            for line, cells in self._layout.split(file):
                if isinstance(cells, BadRow):
                    line += self._skipped
                    raise ValueError(f"{self._text.path}, line {line}: {cells.reason}.")

    def _only(self, best: Sequence[_Fit], sample: str) -> _Fit:
        """Returns the fit whose columns are the file's, of those that are equally good."""
        if len({fit.layout.separator for fit in best}) > 1:
            found = " or by ".join(dict.fromkeys(_shown(fit.layout) for fit in best))
            raise ValueError(
                f"{self._text.path} can be read with columns separated by {found}. Write sep=; (or "
                "another) as its first line, or put texts with such characters in quotes."
            )
        return _most(best, lambda fit: fit.layout.has_quotes == _has_quotes(sample))[0]


def _best(
    fits: Sequence[_Fit], usual: str, sample: str, is_known: Callable[[str], bool]
) -> Sequence[_Fit]:
    """Returns the fits that may be the file's, all equally good."""
    several = [fit for fit in fits if len(fit.columns) > 1]
    if not several:
        return [_one_column(fits, usual, sample)]
    best = _most(several, lambda fit: not fit.bad)
    best = _most(best, lambda fit: sum(map(is_known, fit.columns)))
    return _most(best, lambda fit: fit.good / (fit.good + fit.bad) if fit.good else 0)


def _below(
    first: _Fit, layouts: Sequence[_Layout], sample: str, is_whole: bool, header: HeaderSearch
) -> list[_Fit]:
    """Returns how a file can be read whose columns are named below titles or notes.

    There are none if the first row, with the fit `first`, names the columns that the caller looks
    for. Where all names will do, the first row must show that it is a title, by empty cells after
    it; and where no row has the right names, one without a bad row below it may be what was meant.
    """
    if header.row is not None or not first.columns:
        return []
    if header.fits(first.columns) and (header.is_asked or not first.bad):
        return []
    fitting, others = [], []
    for layout in layouts:
        if header.is_asked or layout.separator in _first_line(sample):
            rows = header.candidates(_top(layout, sample))
            rows = rows if header.is_asked else rows[:1]
            below = [(line, cells) for line, cells in rows if line > first.header]
            right = [line for line, cells in below if header.is_asked and header.fits(cells)]
            if right:
                fitting.append(_fitted(layout, sample, is_whole, right[0]))
            elif below and len(below[0][1]) > 1:
                others.append(_fitted(layout, sample, is_whole, below[0][0]))
    return fitting or [fit for fit in others if not fit.bad and first.bad]


def _one_column(fits: Sequence[_Fit], usual: str, sample: str) -> _Fit:
    """Returns how to read a file whose first line has no separator.

    Separators in its lines are part of its texts, if none stands in quotes, and if not each line
    has the same number of them, as a table without names would.
    """
    fit = next((fit for fit in fits if fit.layout.separator == usual), fits[0])
    if not fit.bad or '"' in sample or any(fit.good == 0 for fit in fits):
        return fit
    return dataclasses.replace(fit, layout=_Layout(_NO_SEPARATOR, has_quotes=False))


def _fitted(layout: _Layout, sample: str, is_whole: bool, header: int | None = None) -> _Fit:
    """Returns how well a layout fits a sample, of which the last row may be cut off.

    `header` is the last line of the row that names the columns: by default, the first row that is
    not blank.
    """
    rows = layout.split(io.StringIO(sample, newline=""))
    line, columns = _columns(rows, header or 0)
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
    return _Fit(layout, line, columns, good, bad)


def _columns(
    rows: Iterator[tuple[int, list[str] | BadRow]], first: int = 0
) -> tuple[int, list[str]]:
    """Returns the first row from a line on that is not blank, without the empty cells at its end.

    It comes with its last line.
    """
    for line, cells in rows:
        if line < first:
            continue
        if isinstance(cells, BadRow):
            break
        if any(map(str.strip, cells)):
            return line, _trimmed(cells)
    return 0, []


def _trimmed(cells: list[str]) -> list[str]:
    """Returns a row without the empty cells at its end."""
    return cells[: max((number for number, cell in enumerate(cells, 1) if cell.strip()), default=0)]


def _top(layout: _Layout, sample: str) -> list[tuple[int, list[str]]]:
    """Returns the first rows with a value."""
    rows = layout.split(io.StringIO(sample, newline=""))
    used = ((line, _trimmed(cells)) for line, cells in rows if not isinstance(cells, BadRow))
    return list(itertools.islice((row for row in used if row[1]), MOST_ROWS_ABOVE))


def _skip(file: Iterable[str], lines: int) -> None:
    """Reads over lines of a file."""
    for _ in itertools.islice(file, lines):
        pass


def _fitting(cells: list[str] | BadRow, width: int) -> list[str] | BadRow:
    """Returns as many cells as columns. Others may be there if they are empty."""
    if isinstance(cells, BadRow) or len(cells) == width:
        return cells
    if not any(map(str.strip, cells)):
        return [""] * width
    if len(cells) > width and not any(map(str.strip, cells[width:])):
        return cells[:width]
    return BadRow(f"has another number of columns than the {width} that are named")


def _first_line(sample: str) -> str:
    """Returns what names the columns, or more if that may have line ends in quotes."""
    line = next((line for line in io.StringIO(sample) if line.strip()), "")
    return sample if line.count('"') % 2 else line


def _most(fits: Sequence[_Fit], value: Callable[[_Fit], float]) -> list[_Fit]:
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

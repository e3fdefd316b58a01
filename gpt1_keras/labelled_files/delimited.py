"""CSV and TSV files: their separator, told from their rows, and their cells."""

import csv
import dataclasses
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

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

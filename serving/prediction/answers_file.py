"""Writes a table's columns with its answers, in the format that the suffix names."""

import contextlib
import dataclasses
import datetime
import json
import math
import pathlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from gpt1_keras.answers import Answer, in_columns
from gpt1_keras.files import check_writable, csv_writer

if TYPE_CHECKING:
    import pyarrow
    import xlsxwriter

PREFIX = "predicted_"
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_JSON_LINES, _PARQUET, _WORKBOOK, _PAGE = ".jsonl", ".parquet", ".xlsx", ".html"
_KINDS = {True: "a folder", False: "a file"}
SUFFIXES = (*_SEPARATORS, _JSON_LINES, _PARQUET, _WORKBOOK, _PAGE)
# Excel's limits: rows, columns, UTF-16 units in a cell; and the days that all programs count alike.
_MOST_ROWS, _MOST_COLUMNS, _LONGEST_CELL = 2**20, 2**14, 32_767
_MOST_NUMBER = 10**15  # beyond which Excel shows other digits
_FIRST_DAY = datetime.date(1900, 3, 1)
_MOST_WIDTH = 40  # of a column, in characters

Rows: TypeAlias = Sequence[Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Layout:
    """The columns of a file of answers.

    Attributes:
        inputs: the names of the input's columns.
        kinds: for each of them, the classes of its values.
        answers: the names of the answers' values.
        prefix: stands before these in the file.
    """

    inputs: Sequence[str]
    kinds: Sequence[Collection[type]]
    answers: Sequence[str]
    prefix: str

    @property
    def names(self) -> list[str]:
        """The names of all columns, in order."""
        return [*self.inputs, *(self.prefix + name for name in self.answers)]

    def rows(self, cells: Sequence[Sequence[Any]], answers: Sequence[Answer]) -> list[list[Any]]:
        """Returns the values of rows, those of the input first, and None without an answer."""
        rows = []
        for of_input, answer in zip(cells, answers, strict=True):
            values = {} if "problem" in answer else in_columns(answer)
            rows.append([*of_input, *(values.get(name) for name in self.answers)])
        return rows


def prefix_for(inputs: Collection[str], answers: Collection[str]) -> str:
    """Returns the prefix of the answers' names, which keeps all columns' names different.

    Raises:
        ValueError: the input has such names with the prefix too.
    """
    for prefix in ("", PREFIX):
        taken = [prefix + name for name in answers if prefix + name in inputs]
        if not taken:
            return prefix
    raise ValueError(
        f"The input has answers already: the columns {', '.join(taken)}. Rename or remove them."
    )


def is_page(path: pathlib.Path) -> bool:
    """Returns whether a path is of a page for people, which `answers_page` writes."""
    return path.suffix.lower() == _PAGE


def check_output(path: pathlib.Path, is_folder: bool) -> None:
    """Refuses, before the work, an output whose place is taken or that cannot be written.

    Args:
        is_folder: whether it will be a folder, which must be new or empty. A file is replaced.

    Raises:
        ValueError: its suffix is unknown, or something else is there.
        OSError: it cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"The output must end in {', '.join(SUFFIXES)}. Received: {path}.")
    if is_folder and is_page(path):
        raise ValueError(f"{path} is one page, which no runner writes. Leave out --runner.")
    is_other = path.is_dir() and any(path.iterdir()) if is_folder else path.is_dir()
    if is_other or is_folder and path.is_file():
        raise ValueError(f"The output {path} exists already, and is {_KINDS[path.is_dir()]}.")
    check_writable(path.parent)


def check_fits(
    path: pathlib.Path, layout: Layout, rows: int, longest: int, where: str = ""
) -> None:
    """Refuses a table that its format cannot hold.

    Args:
        rows: of the table, without its names.
        longest: the length of its longest text.
        where: that text is.

    Raises:
        ValueError: a workbook has fewer rows, or shorter cells.
    """
    if path.suffix.lower() != _WORKBOOK:
        return
    for found, most, what in (
        (rows + 1, _MOST_ROWS, "rows"),
        (len(layout.names), _MOST_COLUMNS, "columns"),
        (longest, _LONGEST_CELL, f"characters in a cell, such as {where}"),
    ):
        if found > most:
            raise ValueError(
                f"{path.name} would have {found:,} {what}; a workbook has at most {most:,}. Write "
                "a .csv, .jsonl or .parquet file."
            )


@contextlib.contextmanager
def answers_file(path: pathlib.Path, layout: Layout) -> Iterator[Callable[[Rows], object]]:
    """Opens a new file for answers; its suffix says the format.

    Yields:
        A function that writes rows, each the values of all columns.
    """
    suffix = path.suffix.lower()
    if suffix == _PARQUET:
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        types = [*map(_type_of, layout.kinds), *map(_answer_type, layout.answers)]
        schema = pyarrow.schema(list(zip(layout.names, types)))
        with ParquetWriter(path, schema) as parquet:
            yield lambda rows: parquet.write_table(_arrow_table(rows, schema))
        return
    if suffix == _WORKBOOK:
        import xlsxwriter
        from xlsxwriter.exceptions import XlsxWriterException

        book = xlsxwriter.Workbook(path, {"constant_memory": True, "tmpdir": path.parent})
        sheet = _Sheet(path, layout, book)
        yield sheet.write
        sheet.set_widths()
        try:
            book.close()
        except XlsxWriterException as error:
            raise OSError(f"{path} cannot be written: {error}.") from error
        return
    with open(path, "w", encoding="utf-8", newline="") as file:
        if suffix == _JSON_LINES:
            yield lambda rows: file.writelines(
                _as_json(dict(zip(layout.names, row))) + "\n" for row in rows
            )
        else:
            write = csv_writer(file, _SEPARATORS[suffix])
            write([layout.names])
            yield lambda rows: write(map(_as_text, row) for row in rows)


class _Sheet:
    """The only sheet of a workbook, whose rows are written one after the other.

    A text is a text, whatever it begins with: no formula and no link. Characters that XML does not
    have are written as Excel writes them, `_x0001_`.
    """

    def __init__(self, path: pathlib.Path, layout: Layout, book: "xlsxwriter.Workbook") -> None:
        self._path, self._layout = path, layout
        self._sheet = book.add_worksheet("Answers")
        self._sheet.freeze_panes(1, 0)
        self._day = book.add_format({"num_format": "yyyy-mm-dd"})
        self._time = book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
        self._rows = 0
        self._widths = [0] * len(layout.names)
        self.write([layout.names])

    def write(self, rows: Rows) -> None:
        """Writes rows. Raises ValueError for one that does not fit."""
        for cells in rows:
            check_fits(self._path, self._layout, self._rows, 0)
            for column, cell in enumerate(cells):
                self._write_cell(column, cell)
            self._rows += 1

    def set_widths(self) -> None:
        """Makes columns as wide as their values, so that no date is shown as ########."""
        for column, width in enumerate(self._widths):
            self._sheet.set_column(column, column, width + 2)

    def _write_cell(self, column: int, cell: Any) -> None:
        row, sheet = self._rows, self._sheet
        if cell is not None and self._widths[column] < _MOST_WIDTH:
            shown = f"{cell:.6g}" if isinstance(cell, float) else str(cell)
            self._widths[column] = min(max(self._widths[column], len(shown)), _MOST_WIDTH)
        if isinstance(cell, bool):
            sheet.write_boolean(row, column, cell)
        elif isinstance(cell, (int, float)) and abs(cell) < _MOST_NUMBER:  # NaN is not
            sheet.write_number(row, column, cell)
        elif _is_day_of_excel(cell):
            is_time = isinstance(cell, datetime.datetime)
            sheet.write_datetime(row, column, cell, self._time if is_time else self._day)
        elif text := _as_text(cell):
            if (length := _utf16_length(text)) > _LONGEST_CELL:
                where = f"{self._layout.names[column]!r} of row {row + 1}"
                check_fits(self._path, self._layout, row, length, where)
            sheet.write_string(row, column, text)


def _is_day_of_excel(cell: Any) -> bool:
    """Returns whether a cell is a date, perhaps with a time, that a workbook holds as it is."""
    if isinstance(cell, datetime.datetime):
        return cell.tzinfo is None and not cell.microsecond and cell.date() >= _FIRST_DAY
    return isinstance(cell, datetime.date) and cell >= _FIRST_DAY


def _utf16_length(text: str) -> int:
    """Returns how many characters a text has as Excel counts them, in UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _arrow_table(rows: Rows, schema: "pyarrow.Schema") -> "pyarrow.Table":
    """Returns rows as a table; the columns of text take any value."""
    import pyarrow

    arrays = []
    for column, field in zip(zip(*rows), schema):
        is_text = field.type == pyarrow.string()
        cells = [_as_text(each) if is_text and each is not None else each for each in column]
        arrays.append(pyarrow.array(cells, field.type))
    return pyarrow.Table.from_arrays(arrays, schema=schema)


class _LongInt(int):
    """Stands for whole numbers that float64 does not have."""


def kind_of(cell: Any) -> type | None:
    """Returns the class of a cell, which decides the type of its column; None without a value."""
    if isinstance(cell, int) and abs(cell) > 2**53:
        return _LongInt if -(2**63) <= cell < 2**63 else object
    return None if cell is None else type(cell)


def _type_of(kinds: Collection[type]) -> "pyarrow.DataType":
    import pyarrow

    for known, type_ in (
        ({bool}, pyarrow.bool_()),
        ({int, _LongInt}, pyarrow.int64()),
        ({int, float}, pyarrow.float64()),
    ):
        if kinds and set(kinds) <= known:
            return type_
    return pyarrow.string()


def _answer_type(name: str) -> "pyarrow.DataType":
    import pyarrow

    types = {
        "label": pyarrow.string(),
        "labels": pyarrow.list_(pyarrow.string()),
        "choice": pyarrow.int64(),
        "scores": pyarrow.list_(pyarrow.float64()),
        "is_sure": pyarrow.bool_(),
        "words": pyarrow.list_(pyarrow.string()),
        "word_fields": pyarrow.list_(pyarrow.string()),
        "word_choices": pyarrow.list_(pyarrow.int64()),
        "word_shares": pyarrow.list_(pyarrow.float64()),
    }
    return types.get(name, pyarrow.float64())


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, float) and math.isnan(value):
        return ""
    if isinstance(value, (bool, list, dict)):
        return _as_json(value)
    return str(value)


def _as_json(value: Any) -> str:
    """Returns a value as JSON. Numbers that it does not have are null, and dates are texts."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, default=str)
    return text.encode("utf-8", "backslashreplace").decode()  # JSON's own escapes of surrogates


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):  # the entries of Parquet's maps are tuples
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""The files whose rows are answered."""

import dataclasses
import glob
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpt1_keras.files import digest_of
from gpt1_keras.labelled_files import Row, Table, open_table
from serving.prediction.answers_file import kind_of


def find_files(pattern: str) -> list[pathlib.Path]:
    """Returns the files that a path names: itself, or all that it matches, as `part-*.csv`.

    Raises:
        FileNotFoundError: it matches none.
    """
    if pathlib.Path(pattern).exists() or not glob.has_magic(pattern):
        return [pathlib.Path(pattern)]
    found = sorted(glob.glob(pattern))
    if not found:
        raise FileNotFoundError(f"No file matches {pattern}.")
    return list(map(pathlib.Path, found))


@dataclasses.dataclass(frozen=True)
class InputFiles:
    """Files of rows to answer.

    Args:
        columns: from names to the files' columns; see `open_table`.
        digests: of the files' contents, as `Survey.files` has them; by default, a file may change.
        sheet, header_row, usual: see `open_table`.
    """

    paths: Sequence[pathlib.Path]
    columns: Mapping[str, str]
    fields: Sequence[str]
    digests: Sequence[str] = ()
    sheet: str | None = None
    header_row: int | None = None
    usual: Mapping[str, str] | None = None

    def rows(self, path: pathlib.Path) -> Iterator[tuple[Row, list[Any]]]:
        """Yields the rows of one of the files, each with its values in all columns.

        Raises:
            ValueError: it has changed since it was surveyed.
        """
        table = self._open(path)
        if self.digests and digest_of(path) != self.digests[self.paths.index(path)]:
            raise ValueError(f"{path} has changed since its rows were checked. Start again.")
        yield from table.with_cells()

    def survey(self) -> "Survey":
        """Reads all files once.

        Raises:
            OSError, ValueError: a file cannot be read, or has bad rows; see `open_table`. Or the
                files have different columns.
        """
        names: list[str] = []
        kinds: list[set[type | None]] = []
        notices: list[str] = []
        digests: list[str] = []
        count, longest, where = 0, 0, ""
        for path in self.paths:
            table = self._open(path)
            if not names:
                names = table.file_columns
                kinds = [set() for _ in names]
            elif names != table.file_columns:
                raise ValueError(
                    f"{path} has the columns {table.file_columns}; expected those of "
                    f"{self.paths[0]}, {names}."
                )
            digests.append(digest_of(path))
            for row, cells in table.with_cells():
                count += 1
                for kind, cell in zip(kinds, cells):
                    kind.add(kind_of(cell))
                    if isinstance(cell, str) and len(cell) > longest:
                        longest, where = len(cell), f"{path}, line {row.line}"
            notices += table.notices
        found = [{each for each in kind if each is not None} for kind in kinds]
        files = dataclasses.replace(self, digests=digests)
        return Survey(files, names, found, count, notices, longest, where)

    def _open(self, path: pathlib.Path) -> Table:
        return open_table(
            *(path, self.columns, [self.fields], True),
            sheet=self.sheet,
            header_row=self.header_row,
            usual=self.usual,
        )


@dataclasses.dataclass(frozen=True)
class Survey:
    """What files hold.

    Attributes:
        files: the same, which refuse to be read once their contents have changed.
        columns: the names of their columns.
        kinds: for each column, the classes of its values.
        rows: how many they have together.
        notices: how they were read, where that is not as expected.
        longest: the length of the longest text.
        longest_at: the file and the line of that text.
    """

    files: InputFiles
    columns: Sequence[str]
    kinds: Sequence[set[type]]
    rows: int
    notices: Sequence[str]
    longest: int
    longest_at: str

"""The files whose rows are answered."""

import dataclasses
import glob
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from gpt1_keras.labelled_files import Table, open_table
from serving.prediction.answers_file import kind_of
from serving.prediction.rows import Line


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
class Survey:
    """What files hold.

    Attributes:
        columns: the names of their columns.
        kinds: for each column, the classes of its values.
        rows: how many they have together.
        notices: how they were read, where that is not as expected.
    """

    columns: Sequence[str]
    kinds: Sequence[set[type]]
    rows: int
    notices: Sequence[str]


@dataclasses.dataclass(frozen=True)
class InputFiles:
    """Files of rows to answer.

    Args:
        columns: from names to the files' columns; see `open_table`.
    """

    paths: Sequence[pathlib.Path]
    columns: Mapping[str, str]
    fields: Sequence[str]

    def lines(self, path: pathlib.Path) -> Iterator[Line]:
        """Yields the rows of one of the files."""
        for row, cells in self._open(path).with_cells():
            yield Line(cells, {field: row[field] for field in self.fields}, row.line)

    def survey(self) -> Survey:
        """Reads all files once.

        Raises:
            OSError, ValueError: a file cannot be read, or has bad rows; see `open_table`. Or the
                files have different columns.
        """
        names: list[str] = []
        kinds: list[set[type | None]] = []
        notices: list[str] = []
        count = 0
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
            for _, cells in table.with_cells():
                count += 1
                for kind, cell in zip(kinds, cells):
                    kind.add(kind_of(cell))
            notices += table.notices
        return Survey(
            names, [{each for each in kind if each is not None} for kind in kinds], count, notices
        )

    def _open(self, path: pathlib.Path) -> Table:
        return open_table(path, self.columns, [self.fields], nulls_are_blank=True)

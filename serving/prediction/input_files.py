"""The files whose rows are answered."""

import dataclasses
import functools
import glob
import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from gpt1_keras.files import digest_of
from gpt1_keras.labelled_files import Row, Table, TableOptions, open_table
from serving.prediction.answers_file import kind_of

# Of a shard. A worker passes over its file's rows before its own, so that shards are not too many.
_LEAST_ROWS, _MOST_ROWS = 2**11, 2**16
_SHARDS = 64  # as long as their rows lie between these


@dataclasses.dataclass(frozen=True)
class Shard:
    """Consecutive rows of a file, which one worker answers.

    Attributes:
        path: the file.
        name: sorted by these, shards are in the order of the input.
        first: the index of the first row.
        rows: how many.
    """

    path: pathlib.Path
    name: str
    first: int
    rows: int


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
        table: which table of the files is read.
        digests, counts: of the files' contents and of their rows, as `Survey.files` has them.
    """

    paths: Sequence[pathlib.Path]
    table: TableOptions
    fields: Sequence[str]
    digests: Sequence[str] = ()
    counts: Sequence[int] = ()

    def shards(self) -> list[Shard]:
        """Returns all rows of surveyed files as shards."""
        rows = min(max(-(-sum(self.counts) // _SHARDS), _LEAST_ROWS), _MOST_ROWS)
        return [
            Shard(path, f"{index:05}-{first // rows:05}", first, min(rows, count - first))
            for index, (path, count) in enumerate(zip(self.paths, self.counts))
            for first in range(0, count, rows)
        ]

    def rows(self, shards: Sequence[Shard]) -> Iterator[Iterator[tuple[Row, list[Any]]]]:
        """Yields the rows of shards, each with its values in all columns of the file.

        Those of a shard are read before those of the next. Consecutive shards of a file are read in
        one go.

        Raises:
            ValueError: a file has changed since it was surveyed.
        """
        for path, group in itertools.groupby(shards, lambda shard: shard.path):
            table = self._open(path)
            if _digest_of(path, path.stat().st_mtime_ns) != self.digests[self.paths.index(path)]:
                raise ValueError(f"{path} has changed since its rows were checked. Start again.")
            here = list(group)
            rows = itertools.islice(table.with_cells(), here[0].first, None)
            for shard in here:
                yield itertools.islice(rows, shard.rows)

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
        counts: list[int] = []
        longest, where = 0, ""
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
            counts.append(0)
            for row, cells in table.with_cells():
                counts[-1] += 1
                for kind, cell in zip(kinds, cells):
                    kind.add(kind_of(cell))
                    if isinstance(cell, str) and len(cell) > longest:
                        longest, where = len(cell), f"{path}, line {row.line}"
            notices += table.notices
        found = [{each for each in kind if each is not None} for kind in kinds]
        files = dataclasses.replace(self, digests=digests, counts=counts)
        return Survey(files, names, found, sum(counts), notices, longest, where)

    def _open(self, path: pathlib.Path) -> Table:
        return open_table(path, wanted=[self.fields], nulls_are_blank=True, **self.table)


@dataclasses.dataclass(frozen=True)
class Survey:
    """The contents of files.

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


@functools.lru_cache
def _digest_of(path: pathlib.Path, changed: int) -> str:
    """Returns the hash of a file, once for the many shards that a worker answers."""
    return digest_of(path)

"""Answers the rows of files: windows of them at a time, in batches of texts of similar lengths."""

import collections
import contextlib
import ctypes
import dataclasses
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

from gpt1_keras.answers import Answer, Engine, answer_each
from gpt1_keras.examples import Examples, as_column
from gpt1_keras.files import atomic_path
from gpt1_keras.labelled_files import Row
from serving.prediction.answers_file import Layout, answers_file, is_page
from serving.prediction.answers_page import answers_page
from serving.prediction.input_files import InputFiles, Shard

# A window's rows are in memory, and are sorted by length.
_ROWS_OF_WINDOW, _LENGTH_OF_WINDOW = 2048, 2**22
# A batch is answered at once. As long as texts are short, it has about 4,000 tokens.
_ROWS_OF_BATCH, _LENGTH_OF_BATCH = 256, 2**14
_WINDOWS_AHEAD = 1  # while one window's answers are written, the next one's are computed
_THREADS = 2  # while one batch is tokenized, another is in the model
_SECONDS = 10.0  # between two lines of progress
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's mallopt: in bytes

_Item = TypeVar("_Item")
# The batches of a window: their rows' numbers in it, and their answers.
_Batches: TypeAlias = list[tuple[list[int], Future[list[Answer]]]]


class Window(NamedTuple):
    """Consecutive rows of a file: their texts, and their values in all columns of the file."""

    examples: Examples
    cells: Sequence[Sequence[Any]]


@dataclasses.dataclass
class Outcome:
    """Counts rows.

    Attributes:
        rows: of the input.
        unanswered: rows without an answer.
        truncated: rows whose texts the model has read only in part.
        problem: the first row without an answer, and why.
    """

    rows: int = 0
    unanswered: int = 0
    truncated: int = 0
    problem: str = ""

    def count(self, examples: Examples, answers: Iterable[Answer]) -> None:
        """Adds rows of a file."""
        for line, answer in zip(examples.indices, answers):
            self.rows += 1
            if "problem" in answer:
                self.unanswered += 1
                where = f"{examples.source}, line {line}"
                self.problem = self.problem or f"{where}: {answer['problem']}"
            else:
                self.truncated += answer.get("truncated", False)

    @classmethod
    def total(cls, outcomes: Iterable[Self]) -> Self:
        """Returns the sum of several outcomes."""
        total = cls()
        for each in outcomes:
            total.rows += each.rows
            total.unanswered += each.unanswered
            total.truncated += each.truncated
            total.problem = total.problem or each.problem
        return total

    def check(self) -> None:
        """Raises ValueError if no row has an answer."""
        if self.unanswered == self.rows:
            raise ValueError(f"None of {self.rows:,} rows has an answer. {self.problem}.")

    def warnings(self) -> Iterator[str]:
        """Yields warnings about the answers."""
        if self.unanswered:
            yield (
                f"{self.unanswered:,} of {self.rows:,} rows have no answer, such as {self.problem}."
            )
        if self.truncated:
            yield (
                f"{self.truncated:,} of {self.rows:,} rows are longer than the model reads, and "
                "were cut."
            )


def predict(
    engine: Engine, files: InputFiles, layout: Layout, output: pathlib.Path, total: int
) -> Outcome:
    """Answers the rows of files on this machine, and writes one file, whole or not at all.

    The process keeps the memory that batches free, until it ends.

    Args:
        total: how many rows there are, for progress.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: no row has an answer.
    """
    _keep_freed_memory()
    with atomic_path(output) as temporary:
        path = pathlib.Path(temporary)
        outcome = write_answers(engine, files, files.shards(), layout, path, total)
        outcome.check()
    return outcome


def write_answers(
    engine: Engine,
    files: InputFiles,
    shards: Sequence[Shard],
    layout: Layout,
    path: pathlib.Path,
    total: int = 0,
) -> Outcome:
    """Answers the rows of shards, and writes a file of them.

    Args:
        total: how many rows there are, for progress; by default, none is printed.
    """
    outcome = Outcome()
    found = (
        window
        for shard, rows in zip(shards, files.rows(shards))
        for window in windows(rows, files.fields, str(shard.path))
    )
    with _writer(path, layout, has_files=len(files.paths) > 1) as write:
        for window, answers in _told(answered(engine, found), outcome, total):
            outcome.count(window.examples, answers)
            write(window, answers)
    return outcome


@contextlib.contextmanager
def _writer(
    path: pathlib.Path, layout: Layout, has_files: bool
) -> Iterator[Callable[[Window, list[Answer]], object]]:
    if is_page(path):
        with answers_page(path, has_files) as page:
            yield lambda window, answers: page.add(window.examples, answers)
    else:
        with answers_file(path, layout) as write:
            yield lambda window, answers: write(layout.rows(window.cells, answers))


def windows(
    rows: Iterable[tuple[Row, Sequence[Any]]], fields: Sequence[str], source: str
) -> Iterator[Window]:
    """Yields windows of at most 2,048 rows, and of about 4 million characters.

    Args:
        rows: each with its values in all columns of the file.
        source: the file's path.
    """
    with_lengths = ((_length(row, fields), (row, cells)) for row, cells in rows)
    for piece in _pieces(with_lengths, _ROWS_OF_WINDOW, _LENGTH_OF_WINDOW):
        found = [row for _, (row, _) in piece]
        texts = {field: as_column([row[field] for row in found]) for field in fields}
        examples = Examples(texts, indices=[row.line for row in found], source=source)
        yield Window(examples, [cells for _, (_, cells) in piece])


def answered(engine: Engine, found: Iterable[Window]) -> Iterator[tuple[Window, list[Answer]]]:
    """Yields each window with its answers, in order.

    Args:
        found: the windows. At most two of them are in memory.
    """
    waiting: collections.deque[tuple[Window, _Batches]] = collections.deque()
    pool = ThreadPoolExecutor(_THREADS)
    try:
        for window in found:
            waiting.append((window, _submit(engine, window.examples, pool)))
            if len(waiting) > _WINDOWS_AHEAD:
                ended, batches = waiting.popleft()
                yield ended, _in_order(batches)
        for window, batches in waiting:
            yield window, _in_order(batches)
    finally:
        # After an error or Ctrl-C, batches that wait are not computed.
        pool.shutdown(cancel_futures=True)


def _submit(engine: Engine, examples: Examples, pool: ThreadPoolExecutor) -> _Batches:
    lengths = [_length(row, engine.fields) for row in examples.rows()]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    batches = []
    numbered = ((lengths[number], number) for number in order)
    for piece in _pieces(numbered, _ROWS_OF_BATCH, _LENGTH_OF_BATCH):
        numbers = [number for _, number in piece]
        batches.append((numbers, pool.submit(answer_each, engine, examples.take(numbers))))
    return batches


def _in_order(batches: _Batches) -> list[Answer]:
    answers: dict[int, Answer] = {}
    for numbers, batch in batches:
        answers.update(zip(numbers, batch.result(), strict=True))
    return [answers[number] for number in range(len(answers))]


def _length(texts: Mapping[str, Any], fields: Sequence[str]) -> int:
    values = (texts[field] for field in fields)
    return sum(sum(map(len, each)) if isinstance(each, list) else len(each) for each in values)


def _pieces(
    items: Iterable[tuple[int, _Item]], most_items: int, most_length: int
) -> Iterator[list[tuple[int, _Item]]]:
    """Yields consecutive items, with their lengths, in lists of at most `most_items`.

    A list ends with the item that brings its length to `most_length`.
    """
    piece: list[tuple[int, _Item]] = []
    length = 0
    for each, item in items:
        piece.append((each, item))
        length += each
        if len(piece) == most_items or length >= most_length:
            yield piece
            piece, length = [], 0
    if piece:
        yield piece


def _told(
    found: Iterable[tuple[Window, list[Answer]]], outcome: Outcome, total: int
) -> Iterator[tuple[Window, list[Answer]]]:
    """Yields windows and their answers, and prints a line of progress now and then."""
    started = told = time.monotonic()
    for window, answers in found:
        yield window, answers
        now = time.monotonic()
        if now - told >= _SECONDS and outcome.rows < total:
            speed = outcome.rows / (now - started)
            print(
                f"{outcome.rows:,} of {total:,} rows, {speed:,.0f} rows/s",
                file=sys.stderr,
                flush=True,
            )
            told = now


def _keep_freed_memory() -> None:
    """Lets glibc keep what batches free. With a small model, a tenth of the time went into giving
    memory back to the system and getting it again.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_MMAP_THRESHOLD, 2**30)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)

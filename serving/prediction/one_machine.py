"""Answers the rows of files on this machine."""

import ctypes
import pathlib
import sys
import time
from collections.abc import Iterable, Iterator

from gpt1_keras.files import atomic_path
from serving.prediction.answers_file import Layout, answers_file
from serving.prediction.input_files import InputFiles
from serving.prediction.row_model import RowModel
from serving.prediction.rows import Outcome, RowAnswer
from serving.prediction.windows import Window, answered, windows

_SECONDS = 10.0  # between two lines of progress
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's mallopt: in bytes


def predict(
    model: RowModel, files: InputFiles, layout: Layout, output: pathlib.Path, total: int
) -> Outcome:
    """Answers the rows of files, and writes one file, whole or not at all.

    The process keeps the memory that batches free, until it ends.

    Args:
        total: how many rows there are, for progress.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: no row has an answer.
    """
    _keep_freed_memory()
    outcome = Outcome()
    with atomic_path(output) as temporary:
        with answers_file(pathlib.Path(temporary), layout) as write:
            for path in files.paths:
                found = answered(model, windows(files.lines(path), files.fields))
                for lines, answers in _told(found, outcome, total):
                    outcome.count(path, lines, answers)
                    write(layout.rows(lines, answers))
        outcome.check()
    return outcome


def _keep_freed_memory() -> None:
    """Lets glibc keep what batches free. With a small model, a tenth of the time went into giving
    memory back to the system and getting it again.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_MMAP_THRESHOLD, 2**30)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def _told(
    found: Iterable[tuple[Window, list[RowAnswer]]], outcome: Outcome, total: int
) -> Iterator[tuple[Window, list[RowAnswer]]]:
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

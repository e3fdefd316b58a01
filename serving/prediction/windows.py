"""Answers many rows: a window of them at a time, in batches of texts of similar lengths."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from serving.prediction.row_model import RowModel
from serving.prediction.rows import Line, RowAnswer

# A window's rows are in memory, and are sorted by length.
_ROWS_OF_WINDOW, _LENGTH_OF_WINDOW = 2048, 2**22
# A batch is answered at once. As long as texts are short, it has about 4,000 tokens.
_ROWS_OF_BATCH, _LENGTH_OF_BATCH = 256, 2**14
_WINDOWS_AHEAD = 1  # while one window's answers are written, the next one's are computed
_THREADS = 2  # while one batch is tokenized, another is in the model

_Item = TypeVar("_Item")
Window = Sequence[Line]


def windows(lines: Iterable[Line], fields: Sequence[str]) -> Iterator[Window]:
    """Yields lines in windows of at most 2,048 rows, and of about 4 million characters."""
    lengths_and_lines = ((_length(line.texts, fields), line) for line in lines)
    for window in _pieces(lengths_and_lines, _ROWS_OF_WINDOW, _LENGTH_OF_WINDOW):
        yield [line for _, line in window]


def answered(model: RowModel, found: Iterable[Window]) -> Iterator[tuple[Window, list[RowAnswer]]]:
    """Yields each window with its answers, in order.

    Args:
        model: answers the rows, several batches of them at a time.
        found: the windows. At most two of them are in memory.
    """
    waiting: collections.deque[tuple[Window, _Answers]] = collections.deque()
    pool = ThreadPoolExecutor(_THREADS)
    try:
        for window in found:
            waiting.append((window, _Answers(model, window, pool)))
            if len(waiting) > _WINDOWS_AHEAD:
                lines, answers = waiting.popleft()
                yield lines, answers.wait()
        for lines, answers in waiting:
            yield lines, answers.wait()
    finally:
        # After an error or Ctrl-C, batches that wait are not computed.
        pool.shutdown(cancel_futures=True)


class _Answers:
    """The answers to a window, which threads compute.

    Args:
        model: answers the rows.
        window: the rows.
        pool: the threads.
    """

    def __init__(self, model: RowModel, window: Window, pool: ThreadPoolExecutor) -> None:
        lengths = [_length(line.texts, model.fields) for line in window]
        order = sorted(range(len(window)), key=lengths.__getitem__)
        numbered = ((lengths[number], number) for number in order)
        self._size = len(window)
        self._batches: list[tuple[list[int], Future[list[RowAnswer]]]] = []
        for piece in _pieces(numbered, _ROWS_OF_BATCH, _LENGTH_OF_BATCH):
            numbers = [number for _, number in piece]
            texts = [window[number].texts for number in numbers]
            self._batches.append((numbers, pool.submit(model.answers, texts)))

    def wait(self) -> list[RowAnswer]:
        """Returns the answers in the order of the window."""
        answers = [RowAnswer({})] * self._size
        for numbers, batch in self._batches:
            for number, answer in zip(numbers, batch.result(), strict=True):
                answers[number] = answer
        return answers


def _length(texts: Mapping[str, Any], fields: Sequence[str]) -> int:
    """Returns the number of characters of an example's texts."""
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

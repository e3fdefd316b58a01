"""Answers many rows: a window of them at a time, in batches of texts of similar lengths."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

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
# The batches of a window: their rows' numbers in it, and their answers.
_Batches: TypeAlias = list[tuple[list[int], Future[list[RowAnswer]]]]


def windows(lines: Iterable[Line], fields: Sequence[str]) -> Iterator[Window]:
    """Yields lines in windows of at most 2,048 rows, and of about 4 million characters."""
    lengths_and_lines = ((_length(line.texts, fields), line) for line in lines)
    for window in _pieces(lengths_and_lines, _ROWS_OF_WINDOW, _LENGTH_OF_WINDOW):
        yield [line for _, line in window]


def answered(model: RowModel, found: Iterable[Window]) -> Iterator[tuple[Window, list[RowAnswer]]]:
    """Yields each window with its answers, in order.

    Args:
        found: the windows. At most two of them are in memory.
    """
    waiting: collections.deque[tuple[Window, _Batches]] = collections.deque()
    pool = ThreadPoolExecutor(_THREADS)
    try:
        for window in found:
            waiting.append((window, _submit(model, window, pool)))
            if len(waiting) > _WINDOWS_AHEAD:
                lines, batches = waiting.popleft()
                yield lines, _in_order(batches)
        for lines, batches in waiting:
            yield lines, _in_order(batches)
    finally:
        # After an error or Ctrl-C, batches that wait are not computed.
        pool.shutdown(cancel_futures=True)


def _submit(model: RowModel, window: Window, pool: ThreadPoolExecutor) -> _Batches:
    """Lets threads answer a window."""
    lengths = [_length(line.texts, model.fields) for line in window]
    order = sorted(range(len(window)), key=lengths.__getitem__)
    batches = []
    numbered = ((lengths[number], number) for number in order)
    for piece in _pieces(numbered, _ROWS_OF_BATCH, _LENGTH_OF_BATCH):
        numbers = [number for _, number in piece]
        texts = [window[number].texts for number in numbers]
        batches.append((numbers, pool.submit(model.answers, texts)))
    return batches


def _in_order(batches: _Batches) -> list[RowAnswer]:
    """Waits for the answers of batches, and returns them in the order of their window."""
    answers: dict[int, RowAnswer] = {}
    for numbers, batch in batches:
        answers.update(zip(numbers, batch.result(), strict=True))
    return [answers[number] for number in range(len(answers))]


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

"""The input transformations and padding on lists of ids, where TensorFlow is not installed.

The functions are those of `input_transformations` and `padding`, with lists in place of ragged
tensors and arrays in place of tensors. A test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpt1_keras.tokenization.input_transformations import ROUND_ROBIN, kept_lengths, second_limit
from gpt1_keras.tokenization.padding import PadTo, SpecialIds, bucket_lengths, choice_lengths

Ids = list[int]


def frame(
    segments: Sequence[list[Ids]],
    tokenizer: SpecialIds,
    sequence_length: int,
    truncate: str = ROUND_ROBIN,
) -> tuple[list[Ids], np.ndarray]:
    """Like `input_transformations.frame`."""
    framed, truncated = [], []
    for texts in zip(*segments, strict=True):
        lengths = [len(text) for text in texts]
        kept_of_each = kept_lengths(lengths, sequence_length, truncate)
        ids = [tokenizer.start_token_id]
        for text, kept in zip(texts, kept_of_each):
            ids += [*text[:kept], tokenizer.delimiter_token_id]
        framed.append([*ids[:-1], tokenizer.extract_token_id])
        truncated.append(kept_of_each != lengths)
    return framed, np.array(truncated, bool)


def interleave(first: list[Ids], second: list[Ids]) -> list[Ids]:
    """Like `input_transformations.interleave`."""
    return [ids for pair in zip(first, second) for ids in pair]


def frame_choices(
    segments: Sequence[list[Any]],
    tokenizer: SpecialIds,
    sequence_length: int,
    truncate: str = ROUND_ROBIN,
) -> tuple[dict[str, list[Ids]], np.ndarray]:
    """Like `input_transformations.frame_choices`."""
    sequence: dict[str, list[Ids]] = {"token_ids": [], "positions": [], "branches": []}
    truncated = []
    context, *questions, choices = segments
    question = questions[0] if questions else [[]] * len(context)
    for context_ids, question_ids, texts in zip(context, question, choices, strict=True):
        limit = second_limit(len(context_ids) + len(question_ids), sequence_length, truncate)
        kept = [text[:limit] for text in texts]
        # All choices share the prefix, so the longest of them limits its length.
        room = sequence_length - 3 - max(map(len, kept), default=0)
        kept_question = question_ids[:room]
        kept_context = context_ids[: room - len(kept_question)]
        truncated.append(
            [kept_context, kept_question, *kept] != [context_ids, question_ids, *texts]
        )
        ids = [tokenizer.start_token_id, *kept_context, *kept_question]
        positions, branches = list(range(len(ids))), [0] * len(ids)
        first = len(ids)
        for number, text in enumerate(kept, start=1):
            branch = [tokenizer.delimiter_token_id, *text, tokenizer.extract_token_id]
            ids += branch
            positions += range(first, first + len(branch))
            branches += [number] * len(branch)
        for name, values in zip(sequence, (ids, positions, branches)):
            sequence[name].append(values)
    return sequence, np.array(truncated, bool)


def pad(
    ids: list[Ids], tokenizer: SpecialIds, sequence_length: int, pad_to: PadTo = "bucket"
) -> dict[str, np.ndarray]:
    """Like `padding.pad`."""
    length = sequence_length
    if pad_to != "sequence_length":
        length = _length(ids, bucket_lengths(sequence_length), pad_to)
    return {
        "token_ids": _to_array(ids, length, tokenizer.pad_token_id),
        "padding_mask": _to_array([[1] * len(row) for row in ids], length, 0),
    }


def as_pairs(rows: np.ndarray) -> np.ndarray:
    """Like `padding.as_pairs`."""
    return rows.reshape(-1, 2, rows.shape[1])


def pad_choices(
    sequence: dict[str, list[Ids]],
    tokenizer: SpecialIds,
    sequence_length: int,
    pad_to: PadTo = "bucket",
) -> dict[str, np.ndarray]:
    """Like `padding.pad_choices`."""
    rows = sequence["token_ids"]
    length = _length(rows, choice_lengths(sequence_length, pad_to), pad_to)
    padding = {"token_ids": tokenizer.pad_token_id, "positions": 0, "branches": -1}
    ends = [[i for i, id in enumerate(row) if id == tokenizer.extract_token_id] for row in rows]
    return {
        **{name: _to_array(sequence[name], length, padding[name]) for name in sequence},
        "extract_indices": _to_array(ends, max(map(len, ends), default=0), -1),
    }


def _length(rows: list[Ids], lengths: Sequence[int], pad_to: PadTo) -> int:
    """Like `padding._length`."""
    longest = max([1, *map(len, rows)])
    if pad_to == "longest":
        return longest
    return min(length for length in lengths if length >= longest)


def _to_array(rows: list[Ids], length: int, padding: int) -> np.ndarray:
    """Pads or truncates rows, to int32 `[rows, length]`."""
    array = np.full((len(rows), length), padding, np.int32)
    for values, row in zip(array, rows):
        values[: len(row)] = row[:length]
    return array

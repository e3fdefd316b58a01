"""Texts in lists, for where TensorFlow is not installed; see `tensor_backend` for the names."""

from __future__ import annotations

# ruff: noqa: F401, `text_backend` returns this module with what it imports
import functools
import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.normalizers import BertNormalizer

from gpt1_keras.tokenization.input_transformations import (
    ROUND_ROBIN,
    kept_at_end,
    kept_lengths,
    second_limit,
)
from gpt1_keras.tokenization.padding import (
    PadTo,
    SpecialIds,
    bucket_lengths,
    choice_lengths,
    window_counts,
)
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN, Vocabulary

Ids = list[int]

_WHITE_SPACE = " \t\n\v\f\r"  # what tf.strings.strip strips
_NORMALIZER = BertNormalizer(lowercase=True)


def frame(
    segments: Sequence[list[Ids]],
    tokenizer: SpecialIds,
    sequence_length: int,
    truncate: str = ROUND_ROBIN,
    tail: float = 0.0,
) -> tuple[list[Ids], np.ndarray]:
    """Like `input_transformations.frame`."""
    framed, truncated = [], []
    for texts in zip(*segments, strict=True):
        lengths = [len(text) for text in texts]
        kept_of_each = kept_lengths(lengths, sequence_length, truncate)
        ids = [tokenizer.start_token_id]
        for text, kept in zip(texts, kept_of_each):
            ids += [*_truncated(text, kept, tail), tokenizer.delimiter_token_id]
        framed.append([*ids[:-1], tokenizer.extract_token_id])
        truncated.append(kept_of_each != lengths)
    return framed, np.array(truncated, bool)


def _truncated(ids: Ids, kept: int, tail: float) -> Ids:
    """Returns the first tokens of a text, and the share `tail` of its last ones, `kept` in all."""
    end = kept_at_end(kept, tail)
    return ids[: kept - end] + ids[len(ids) - end :]


def frame_windows(
    segment: list[Ids], tokenizer: SpecialIds, sequence_length: int, tail: float, windows: int
) -> tuple[list[list[Ids]], np.ndarray]:
    """Like `input_transformations.frame_windows`."""
    [room] = kept_lengths([sequence_length], sequence_length)
    framed, truncated = [], []
    for ids in segment:
        count = min(max(-(-len(ids) // room), 1), windows)
        ends = [number * len(ids) // count for number in range(count + 1)]
        shares = [ids[start:end] for start, end in zip(ends, ends[1:])]
        of_text, are_truncated = frame([shares], tokenizer, sequence_length, tail=tail)
        framed.append(of_text)
        truncated.append(are_truncated.any())
    return framed, np.array(truncated, bool)


def interleave(first: list[Ids], second: list[Ids]) -> list[Ids]:
    """Like `input_transformations.interleave`."""
    return [ids for pair in zip(first, second) for ids in pair]


def frame_choices(
    segments: Sequence[list[Any]],
    tokenizer: SpecialIds,
    sequence_length: int,
    truncate: str = ROUND_ROBIN,
    tail: float = 0.0,
) -> tuple[dict[str, list[Ids]], np.ndarray]:
    """Like `input_transformations.frame_choices`."""
    sequence: dict[str, list[Ids]] = {"token_ids": [], "positions": [], "branches": []}
    truncated = []
    context, *questions, choices = segments
    question = questions[0] if questions else [[]] * len(context)
    for context_ids, question_ids, texts in zip(context, question, choices, strict=True):
        limit = second_limit(len(context_ids) + len(question_ids), sequence_length, truncate)
        kept = [_truncated(text, min(len(text), limit), tail) for text in texts]
        # All choices share the prefix, so the longest of them limits its length.
        room = sequence_length - 3 - max(map(len, kept), default=0)
        kept_question = _truncated(question_ids, min(len(question_ids), room), tail)
        room -= len(kept_question)
        kept_context = _truncated(context_ids, min(len(context_ids), room), tail)
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


def pad_windows(
    ids: list[list[Ids]],
    tokenizer: SpecialIds,
    sequence_length: int,
    windows: int,
    pad_to: PadTo = "bucket",
) -> dict[str, np.ndarray]:
    """Like `padding.pad_windows`."""
    count = windows
    if pad_to != "sequence_length":
        count = _length(ids, window_counts(windows), pad_to)
    # Without tokens, a window is all padding.
    rows = [row for text in ids for row in [*text, *[[]] * (count - len(text))]]
    padded = pad(rows, tokenizer, sequence_length, pad_to)
    return {name: each.reshape(len(ids), count, -1) for name, each in padded.items()}


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


def _length(rows: Sequence[list[Any]], lengths: Sequence[int], pad_to: PadTo) -> int:
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


def as_texts(x: Any, errors: str = "replace") -> Any:
    """Converts the strings that a user gives to a str or nested lists of str; see `tensor_backend`.

    `errors` says how invalid bytes are decoded, as in `bytes.decode`. `bert` drops their
    replacement.
    """
    if isinstance(x, bytes):
        return x.decode("utf-8", errors)
    if isinstance(x, str):
        return str(x)
    if isinstance(x, (list, tuple)):
        return [as_texts(text, errors) for text in x]
    if hasattr(x, "__array__") and np.asarray(x).dtype.kind in "OSU":
        return as_texts(np.asarray(x).tolist(), errors)
    raise ValueError(
        "Expected a string, or a list or array of strings. Received: "
        f"{reprlib.repr(x)}, a {type(x).__name__}."
    )


def as_choices(x: Any) -> Any:
    """As in `tensor_backend`, to nested lists; in an array, the last ones may be no choices."""
    choices = as_texts(x)
    if isinstance(x, (list, tuple)) or rank(choices) != 2:
        return choices
    counts = [max((end for end, text in enumerate(row, 1) if text), default=0) for row in choices]
    return [row[:count] for row, count in zip(choices, counts)]


def check_slices(texts: dict[str, Any]) -> None:
    """Raises ValueError unless texts by field, of which the last may be choices, make arrays."""
    *_, last = texts.values()
    if rank(last) == 1:
        return
    if len({len(row) for row in last}) > 1 or not all(map(all, last)):
        raise ValueError(
            "Where TensorFlow is not installed, all examples of a data set need the same number of "
            f"choices, none of them empty. Received: {reprlib.repr(last)}."
        )


def check_choices(choices: list[list[str]], labels: Any = None) -> None:
    """As in `tensor_backend`, but raises ValueError."""
    counts = np.array([len(row) for row in choices])
    if not np.all(counts > 0):
        raise ValueError(f"Every example needs a choice. Received numbers of choices: {counts}.")
    if labels is not None:
        numbers = np.reshape(labels, -1)
        if not np.all((numbers >= 0) & (numbers < counts) & (numbers % 1 == 0)):
            raise ValueError(f"Labels must be indices of choices, from 0. Received: {labels}.")


def rank(texts: Any) -> int | None:
    """Returns the depth of nested lists; None if their depths differ."""
    if isinstance(texts, str):
        return 0
    ranks = {rank(text) for text in texts} or {0}
    depth = ranks.pop()
    return None if ranks or depth is None else 1 + depth


class Codec:
    """As in `tensor_backend`, with Hugging Face's `tokenizers`, and for `bert` alone."""

    def __init__(
        self, vocabulary: Vocabulary, token_texts: Sequence[str], normalization: str
    ) -> None:
        self._vocabulary, self._token_texts = vocabulary, token_texts
        self._normalization = normalization
        self._normalized = _NormalizedCodePoints()

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer:
        if self._normalization != "bert":
            raise ImportError(
                f"normalization={self._normalization!r} needs TensorFlow, which is not installed. "
                "Only 'bert' works without it."
            )
        vocabulary = self._vocabulary
        tokenizer = Tokenizer(
            models.BPE(
                vocabulary.token_to_id,
                vocabulary.merges,
                unk_token=UNKNOWN,
                end_of_word_suffix=END_OF_WORD,
                fuse_unk=False,
            )
        )
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer

    def encode(self, texts: Any) -> Any:
        """Like `GPT1Tokenizer.tokenize`: an array of one text's ids, or nested lists."""
        texts = as_texts(texts)
        if isinstance(texts, str):
            return np.array(self._encode([texts])[0], np.int32)
        _check_depth(texts)
        return self._encode_nested(texts)

    def encode_with_offsets(self, texts: Any) -> tuple[Any, Any, Any]:
        """Like `GPT1Tokenizer.tokenize_with_offsets`."""
        texts = as_texts(texts, "surrogateescape")  # a surrogate for each invalid byte
        if isinstance(texts, str):
            ids, starts, ends = self._encode_one_with_offsets(texts)
            return np.array(ids, np.int32), np.array(starts, np.int64), np.array(ends, np.int64)
        _check_depth(texts)
        return self._encode_nested_with_offsets(texts)

    def _encode_nested_with_offsets(self, texts: list[Any]) -> tuple[Any, Any, Any]:
        """Returns the ids, starts and ends of nested lists of str."""
        columns = [
            self._encode_one_with_offsets(text)
            if isinstance(text, str)
            else self._encode_nested_with_offsets(text)
            for text in texts
        ]
        ids, starts, ends = ([column[index] for column in columns] for index in range(3))
        return ids, starts, ends

    def _encode_one_with_offsets(self, text: str) -> tuple[list[int], list[int], list[int]]:
        """Returns a text's ids, starts and ends; surrogates stand for invalid bytes in it."""
        normalized = [self._normalized[ord(character)] for character in text]
        sizes = [len(character.encode("utf-8", "surrogateescape")) for character in text]
        ends = np.cumsum(sizes, dtype=np.int64)
        source = np.repeat(np.arange(len(text)), [len(each) for each in normalized])
        encoding = self._tokenizer.encode("".join(normalized))
        ranges = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        first, last = source[ranges[:, 0]], source[ranges[:, 1] - 1]
        return encoding.ids, (ends - sizes)[first].tolist(), ends[last].tolist()

    def _encode_nested(self, texts: list[Any]) -> list[Any]:
        """Returns the ids of nested lists of str."""
        if texts and isinstance(texts[0], list):
            return [self._encode_nested(row) for row in texts]
        return self._encode(texts)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of a batch."""
        normalized = [text.translate(self._normalized) for text in texts]
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(normalized)]

    def encode_each(self, batches: Sequence[list[Any]]) -> list[list[Any]]:
        """Like `GPT1Tokenizer.tokenize_each`."""
        return [self._encode_nested(texts) for texts in batches]

    def decode(self, ids: Any, padding: int) -> str | list[str]:
        """Like `GPT1Tokenizer.detokenize`."""
        if not isinstance(ids, (list, tuple)):
            array = np.asarray(ids)
            if array.ndim == 2:
                # Padding is dropped only at the end of a row, where no other ids follow it.
                kept = np.cumsum((array != padding)[:, ::-1], axis=1)[:, ::-1]
                ids = [row[: np.count_nonzero(each)] for row, each in zip(array, kept)]
        if len(ids) and not np.ndim(ids[0]):
            return self._decode(ids)
        return [self._decode(row) for row in ids] if len(ids) else ""

    def _decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids. Raises ValueError if an id is outside the vocabulary."""
        strange = [int(id) for id in ids if not 0 <= id < len(self._token_texts)]
        if strange:
            raise ValueError(
                f"Ids must be in [0, {len(self._token_texts)}). Received: {strange[0]}."
            )
        return "".join(self._token_texts[id] for id in ids).strip(_WHITE_SPACE)


def _check_depth(texts: list[Any]) -> None:
    """Raises ValueError if the lists have different depths."""
    if rank(texts) is None:
        raise ValueError(f"Expected lists of equal depth. Received: {reprlib.repr(texts)}.")


class _NormalizedCodePoints(dict[int, str]):
    """What `bert` makes of each code point, as a table for `str.translate` that fills itself.

    Hugging Face's normalization of a whole text may swap two adjacent combining marks. In the
    tokenizer's ids, they stay as typed.
    """

    def __missing__(self, code_point: int) -> str:
        is_byte = 0xDC80 <= code_point < 0xDD00  # the surrogate of an invalid byte
        self[code_point] = "" if is_byte else _NORMALIZER.normalize_str(chr(code_point))
        return self[code_point]

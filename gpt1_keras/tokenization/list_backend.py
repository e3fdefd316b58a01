"""Texts in lists, for where TensorFlow is not installed; see `tensor_backend` for the names."""

# ruff: noqa: F401, `text_backend` returns this module with what it imports

from __future__ import annotations

import functools
import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.normalizers import BertNormalizer

from gpt1_keras.tokenization.list_transformations import (
    as_pairs,
    frame,
    frame_choices,
    interleave,
    pad,
    pad_choices,
)
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN, Vocabulary

_WHITE_SPACE = " \t\n\v\f\r"  # what tf.strings.strip strips


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


def for_slicing(texts: dict[str, Any]) -> dict[str, Any]:
    """As in `tensor_backend`. Raises ValueError unless the choices make an array."""
    *_, choices = texts.values()
    if len({len(row) for row in choices}) > 1 or not all(map(all, choices)):
        raise ValueError(
            "Where TensorFlow is not installed, all examples of a data set need the same number of "
            f"choices, none of them empty. Received: {reprlib.repr(choices)}."
        )
    return texts


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
                "Only 'bert' does without."
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


_NORMALIZER = BertNormalizer(lowercase=True)

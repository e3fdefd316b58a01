"""Turns the documents of a unit of work into a shard of token ids."""

import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from gpt1_keras import GPT1Tokenizer
from gpt1_keras.files import atomic_path
from gpt1_keras.presets import load_tokenizer
from training.corpus.corpus_format import TOKENIZER_FOLDER

_BATCH_BYTES = 2**19  # text that is tokenized at once; takes about 500 MiB of memory
_NO_TOKEN = -1


@dataclasses.dataclass(frozen=True)
class Unit:
    """The documents of a shard.

    Attributes:
        index: index of the shard in the split.
        count: number of shards of the split.
        documents: `TextFiles` or `TfdsDocuments`: an iterable of documents, each an iterable of
            lines, which are bytes.
    """

    split: str
    index: int
    count: int
    documents: Iterable[Iterable[bytes]]

    @property
    def file(self) -> str:
        """The name of the shard's file."""
        return f"{self.split}-{self.index:05}-of-{self.count:05}.npy"

    def __str__(self) -> str:
        return f"{self.file} ({self.documents})"


class ShardError(OSError):
    """A shard could not be written. The message names the shard, its documents and the reason."""


def shard_dtype(vocabulary_size: int) -> str:
    """Returns the smaller of `"uint16"` and `"uint32"` that holds all ids."""
    return "uint16" if vocabulary_size <= 2**16 else "uint32"


def write_shard(unit: Unit, folder: str) -> dict[str, Any]:
    """Tokenizes the documents of a unit and writes their ids.

    The result depends on the arguments alone, so any process may run it, more than once.

    Args:
        folder: path of the corpus, which holds the tokenizer already.

    Returns:
        dict of `split`; `file`, its name; the numbers of `tokens`, of `documents` (each with one
        `<start>`), of `empty_documents` (which are left out) and of `bytes` read; `sha256` of the
        file; and `source`, which says where the documents come from.

    Raises:
        ShardError: anything went wrong.
    """
    try:
        tokenizer = _tokenizer(os.path.join(folder, TOKENIZER_FOLDER))
        tokens, counts = encode_documents(unit.documents, tokenizer)
        path = os.path.join(folder, unit.file)
        with atomic_path(path) as temporary:
            np.save(temporary, tokens)
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ShardError(f"{unit}: {type(error).__name__}: {reason}") from error
    return {
        "split": unit.split,
        "file": unit.file,
        **counts,
        "sha256": digest,
        "source": str(unit.documents),
    }


def encode_documents(
    documents: Iterable[Iterable[bytes]], tokenizer: GPT1Tokenizer
) -> tuple[np.ndarray, dict[str, int]]:
    """Tokenizes documents, each after a `<start>`.

    The paper does not say what separates its books, and its vocabulary has no token for that. We
    use `<start>`, which fine-tuning puts before every input. Documents without tokens are left out.

    Args:
        documents: each an iterable of lines up to and including the line feed. No word crosses
            lines, so the ids are those of the whole document. (The normalization `original` leaves
            references such as `&amp;` alone after a text's first `<`; here, after a line's first.)

    Returns:
        `(tokens, counts)`: uint16 or uint32 `[tokens]`, and the numbers of `tokens`, `documents`,
        `empty_documents` and `bytes`.
    """
    dtype = shard_dtype(tokenizer.vocabulary_size())
    chunks = [np.empty(0, dtype)]
    line_end = _NO_TOKEN if tokenizer.line_end_id is None else tokenizer.line_end_id
    last, started, seen, read = np.array([[-1, -1]]), 0, 0, 0
    for indices, pieces in _batches(documents):
        ids = tokenizer(pieces)
        lengths = ids.row_lengths().numpy()
        # `<start>` goes before a document's first token, a line end before each further line's.
        filled = np.flatnonzero(lengths)
        is_new_document, is_new_line = np.diff(indices[filled], axis=0, prepend=last).T != 0
        marks = np.where(is_new_line, line_end, _NO_TOKEN)
        marks = np.where(is_new_document, tokenizer.start_token_id, marks)
        marked = marks != _NO_TOKEN
        begins = (np.cumsum(lengths) - lengths)[filled]
        chunk = ids.values.numpy().astype(dtype)
        chunks.append(np.insert(chunk, begins[marked], marks[marked].astype(dtype)))
        last = indices[filled][-1:] if filled.size else last
        started += int(np.count_nonzero(is_new_document))
        seen = int(indices[-1, 0]) + 1
        read += sum(map(len, pieces))
    tokens = np.concatenate(chunks)
    return tokens, {
        "tokens": len(tokens),
        "documents": started,
        "empty_documents": seen - started,
        "bytes": read,
    }


def _batches(
    documents: Iterable[Iterable[bytes]],
) -> Iterator[tuple[np.ndarray, list[bytes]]]:
    """Yields `(indices, pieces)`: parts of lines; int `[pieces, 2]` has each one's document and
    line.
    """
    indices: list[tuple[int, int]] = []
    pieces: list[bytes] = []
    length = 0
    for document_index, document in enumerate(documents):
        # The empty line counts a document that has no other.
        for line_index, line in enumerate(itertools.chain([b""], document)):
            for piece in _cut(line):
                indices.append((document_index, line_index))
                pieces.append(piece)
                length += 1 + len(piece)
                if length >= _BATCH_BYTES:
                    yield np.array(indices), pieces
                    indices, pieces, length = [], [], 0
    if pieces:
        yield np.array(indices), pieces


def _cut(line: bytes) -> Iterator[bytes]:
    """Cuts a long line after spaces, which no word crosses."""
    start = 0
    while len(line) - start > _BATCH_BYTES:
        end = line.rfind(b" ", start, start + _BATCH_BYTES) + 1
        if not end:
            break
        yield line[start:end]
        start = end
    yield line[start:]


@functools.lru_cache(maxsize=1)
def _tokenizer(folder: str) -> GPT1Tokenizer:
    return load_tokenizer(folder)

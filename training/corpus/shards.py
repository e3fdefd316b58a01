"""Documents to a shard of token ids."""

import functools
import hashlib
import itertools
import os

import numpy as np

from gpt1_keras.files import atomic_path
from gpt1_keras.presets.tokenizers import load_tokenizer
from training.corpus.windows import TOKENIZER_FOLDER

_BATCH_BYTES = 2**19  # text that is tokenized at once, in some 500 MiB of memory
_NO_TOKEN = -1


class ShardError(RuntimeError):
    """A shard could not be written; the message names it, its documents and the reason."""


def shard_dtype(vocabulary_size):
    """The smallest of uint16 and uint32, as a name, that holds all ids."""
    return "uint16" if vocabulary_size <= 2**16 else "uint32"


def write_shard(unit, folder):
    """Tokenizes the documents of a unit and writes their ids.

    It is a function of its arguments alone, so any process may run it, and more than once.

    Args:
        unit: `training.corpus.documents.Unit`.
        folder: path of the corpus, which holds the tokenizer already.

    Returns:
        dict: `split`; `file`, its name; `tokens`, all ids; `documents`, each with one `<start>`;
        `empty_documents`, those left out; `bytes`, of text read; `sha256` of the file; `source`,
        what documents they are.

    Raises:
        ShardError: whatever went wrong.
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


def encode_documents(documents, tokenizer):
    """Tokenizes documents, each behind a `<start>`.

    The paper is silent about what parts its books, and its vocabulary has no mark for it. We take
    `<start>`, as fine-tuning puts it before every input. Documents without a token are left out.

    Args:
        documents: iterable of documents, each an iterable of lines (bytes), each up to and with
            its line feed. No word goes beyond a line, so these are the ids of the whole document.
            (The normalization `original` leaves references such as `&amp;` alone from a text's
            first `<` on; here, from a line's first.)
        tokenizer: `GPT1Tokenizer`.

    Returns:
        `(tokens, counts)`: uint16 or uint32 `[tokens]`, and a dict of ints: `tokens`, `documents`,
        `empty_documents`, `bytes`.
    """
    dtype = shard_dtype(tokenizer.vocabulary_size())
    chunks = [np.empty(0, dtype)]
    line_end = _NO_TOKEN if tokenizer.line_end_id is None else tokenizer.line_end_id
    last, started, seen, size = np.array([[-1, -1]]), 0, 0, 0
    for places, pieces in _batches(documents):
        ids = tokenizer(pieces)
        lengths = ids.row_lengths().numpy()
        # Before its first token a document has `<start>`, and each further line the last one's end.
        filled = np.flatnonzero(lengths)
        is_new_document, is_new_line = np.diff(places[filled], axis=0, prepend=last).T != 0
        marks = np.where(is_new_line, line_end, _NO_TOKEN)
        marks = np.where(is_new_document, tokenizer.start_token_id, marks)
        marked = marks != _NO_TOKEN
        begins = (np.cumsum(lengths) - lengths)[filled]
        chunk = ids.values.numpy().astype(dtype)
        chunks.append(np.insert(chunk, begins[marked], marks[marked].astype(dtype)))
        last = places[filled][-1:] if filled.size else last
        started += int(np.count_nonzero(is_new_document))
        seen = places[-1, 0] + 1
        size += sum(map(len, pieces))
    tokens = np.concatenate(chunks)
    return tokens, {
        "tokens": len(tokens),
        "documents": started,
        "empty_documents": int(seen) - started,
        "bytes": size,
    }


def _batches(documents):
    """Batches of pieces of lines, each behind an int array `[pieces, 2]`.

    It has the numbers of the document and of the line, counted in it, that each piece belongs to.
    """
    places, pieces, size = [], [], 0
    for number, document in enumerate(documents):
        # The empty line counts a document that has no other.
        for line_number, line in enumerate(itertools.chain([b""], document)):
            for piece in _cut(line):
                places.append((number, line_number))
                pieces.append(piece)
                size += 1 + len(piece)
                if size >= _BATCH_BYTES:
                    yield np.array(places), pieces
                    places, pieces, size = [], [], 0
    if pieces:
        yield np.array(places), pieces


def _cut(line):
    """The pieces of a line, cut behind a blank where it is long, as no word goes beyond one."""
    start = 0
    while len(line) - start > _BATCH_BYTES:
        end = line.rfind(b" ", start, start + _BATCH_BYTES) + 1
        if not end:
            break
        yield line[start:end]
        start = end
    yield line[start:]


@functools.lru_cache(maxsize=1)
def _tokenizer(folder):
    return load_tokenizer(folder)

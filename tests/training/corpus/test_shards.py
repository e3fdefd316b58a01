"""Documents to tokens: the same as from whole texts, wherever they are cut."""

import io

import numpy as np
import pytest

import gpt1_keras
from training.corpus import shards
from training.corpus.shards import encode_documents, shard_dtype


@pytest.mark.slow
@pytest.mark.parametrize("normalization", ["bert", "original"])
def test_lines_give_the_tokens_of_the_whole_text(
    books_dir, original_files, whole_documents, monkeypatch, normalization
):
    """No word goes beyond a line, whatever ends it, so batches of lines may be cut anywhere."""
    monkeypatch.setattr(shards, "_BATCH_BYTES", 1000)
    tokenizer = gpt1_keras.GPT1Tokenizer(*original_files, normalization=normalization)
    book = sorted((books_dir / "valid").iterdir())[0].read_bytes()[:50_000]
    rng = np.random.default_rng(0)
    pieces = (
        "a bc \n \r \r\n \x0b \x0c \x1c \x85 \u2028 \u00e9 \u4e2d e\u0301 , . \U0001f600".split(" ")
    )
    odd = "".join(rng.choice(pieces, 20_000)).encode()
    invalid = bytes(rng.choice(list(b"ab \n\r\xc3\xa9\xe4\xb8\xad\xff\xf0\x9f"), 20_000).tolist())
    blank = b"a\n" + b" " * 1500 + b"b"  # of the second line, the first piece has no token
    long = "".join(rng.choice([" ", "a", "bc ", "\u0301", "\u4e2d", "x" * 1500], 3_000)).encode()
    documents = [book, b"", odd, b"\n \n", invalid, blank, long, b"z" * 5000]
    tokens, counts = encode_documents(map(io.BytesIO, documents), tokenizer)
    assert tokens.tolist() == whole_documents(tokenizer, documents)
    assert counts == {
        "tokens": len(tokens),
        "documents": 6,
        "empty_documents": 2,
        "bytes": sum(map(len, documents)),
    }


def test_no_document_at_all_is_no_token(tiny_tokenizer):
    tokens, counts = encode_documents([], tiny_tokenizer)
    assert len(tokens) == 0 and not any(counts.values())


def test_a_large_vocabulary_takes_wider_ids():
    assert shard_dtype(65_536) == "uint16"
    assert shard_dtype(65_537) == "uint32"

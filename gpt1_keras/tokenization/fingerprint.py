"""A fingerprint of all that a tokenizer's ids depend on, which saved tokenizers and models keep."""

import hashlib
import json
import os
from collections.abc import Sequence

from gpt1_keras.tokenization.normalization import NORMALIZATIONS
from gpt1_keras.tokenization.vocabulary import Vocabulary


def fingerprint(tokens: Sequence[str], vocabulary: Vocabulary, normalization: str) -> str:
    """SHA-256 of all tokens, special ones included, the merges, and the normalization's name."""
    content = [list(tokens), vocabulary.merges_text(), normalization]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def check_fingerprint(
    expected: str,
    tokens: Sequence[str],
    vocabulary: Vocabulary,
    normalization: str,
    folder: str | os.PathLike[str],
) -> None:
    """Checks that a folder's files are those that a tokenizer was saved with.

    Raises:
        ValueError: it was saved with other files, or with another normalization.
    """
    received = fingerprint(tokens, vocabulary, normalization)
    if received == expected:
        return
    for other in NORMALIZATIONS:
        if expected == fingerprint(tokens, vocabulary, other):
            raise ValueError(
                f"The tokenizer in {folder} was saved with normalization={other!r}, and ids of "
                f"another mean nothing to its model. Received: {normalization!r}."
            )
    raise ValueError(
        f"The vocabulary in {folder} is not the one that the tokenizer was saved with: its "
        f"fingerprint is {received}; expected {expected}."
    )

"""Rebuilds bert_table.npz, the `bert` normalization of every code point.

    python -m tests.helpers.make_bert_table

Hugging Face's `tokenizers` (BertNormalizer, then BertPreTokenizer) defines the normalization. What
it makes of a code point does not depend on its neighbours, so a table of every code point
reproduces it. A test compares the shipped table with the installed `tokenizers`.
"""

import os
import sys
from typing import Any

import numpy as np
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from gpt1_keras.cli import program
from gpt1_keras.files import atomic_path
from gpt1_keras.tokenization.lookup import CODE_POINTS, distinct_pages
from gpt1_keras.tokenization.normalization.bert import HANGUL, TABLE_FILE

_SURROGATES = range(0xD800, 0xE000)  # not in valid strings, so dropped


def build() -> dict[str, np.ndarray]:
    """Asks `tokenizers` about every code point.

    Returns:
        A dict of the arrays of `BertTable`. Hangul syllables, which decompose by arithmetic, have
        the entry 0.
    """
    normalizer, splitter = BertNormalizer(lowercase=True), BertPreTokenizer()
    replacements = {"": 0}  # the first is not used
    entries = np.zeros(CODE_POINTS, np.int32)
    isolated: set[str] = set()
    joined: set[str] = set()
    for code in range(CODE_POINTS):
        if code in HANGUL:
            continue
        # What stands between two letters shows whether the code point joins or separates them.
        text = "ab" if code in _SURROGATES else normalizer.normalize_str(f"a{chr(code)}b")
        words = [word for word, _ in splitter.pre_tokenize_str(text)]
        normalized = words[0][1:-1] if len(words) == 1 else "".join(words[1:-1])
        (joined if len(words) == 1 else isolated).update(normalized)
        if len(words) > 1 and not normalized:
            normalized = " "
        if normalized != chr(code):
            key = normalized or "\0"  # no code point becomes \0
            entries[code] = replacements.setdefault(key, len(replacements))
    if both := isolated & joined:
        raise ValueError(f"Characters both join words and stand alone: {sorted(both)}.")
    codes = np.array(sorted(map(ord, isolated)))
    gaps = np.flatnonzero(np.diff(codes) > 1)
    first, last = codes[np.append(0, gaps + 1)], codes[np.append(gaps, len(codes) - 1)]
    return {
        "entries": entries,
        "replacements": np.array([key.replace("\0", "") for key in replacements]),
        "isolated": np.stack([first, last], -1).astype(np.int32),
    }


@program("tests.helpers.make_bert_table")
def main() -> None:
    """Rebuild bert_table.npz from the installed `tokenizers`."""
    arrays: dict[str, Any] = build()
    arrays["pages"], arrays["page_of"] = distinct_pages(arrays.pop("entries"))
    with atomic_path(TABLE_FILE) as temporary:
        np.savez_compressed(temporary, **arrays)
    print(f"{TABLE_FILE}: {os.path.getsize(TABLE_FILE):,} bytes")


if __name__ == "__main__":
    sys.exit(main())

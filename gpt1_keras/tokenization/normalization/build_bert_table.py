"""Build only: rebuilds bert_table.npz, the `bert` normalization of every code point.

    python -m gpt1_keras.tokenization.normalization.build_bert_table

Hugging Face's `tokenizers` (BertNormalizer, then BertPreTokenizer) defines the normalization, and
treats each code point independently of its neighbours, so asking it about every code point once
fills a table that reproduces it. A test compares the shipped table with the installed
`tokenizers`.
"""

import os
import sys
from typing import Any

import numpy as np
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from gpt1_keras.cli import program
from gpt1_keras.files import atomic_path
from gpt1_keras.tokenization.lookup.code_point_table import CODE_POINTS, CodePointTable
from gpt1_keras.tokenization.normalization.bert import DROPPED, ISOLATED, LETTER, SPACE, TABLE_FILE

_SURROGATES = range(0xD800, 0xE000)  # never in a valid string
_HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic instead


def build() -> dict[str, np.ndarray]:
    """Asks `tokenizers` about every code point.

    Returns:
        dict of int32 arrays `[0x110000]`: `kind`, what the code point does to its word; `count`,
        how many letters it becomes; `shift`, its first letter minus itself (differences repeat
        from page to page, letters do not); `second` and `third`, its further letters or 0.
    """
    normalizer, splitter = BertNormalizer(lowercase=True), BertPreTokenizer()
    names = ("kind", "count", "shift", "second", "third")
    table = {name: np.zeros(CODE_POINTS, np.int32) for name in names}
    for code in range(CODE_POINTS):
        if code in _SURROGATES:
            continue
        # What stands between two letters shows whether the code point joins or separates them.
        text = normalizer.normalize_str(f"a{chr(code)}b")
        words = [word for word, _ in splitter.pre_tokenize_str(text)]
        if len(words) == 1:
            letters = words[0][1:-1]
            kind = LETTER if letters else DROPPED
        else:
            letters = "".join(words[1:-1])
            kind = ISOLATED if letters else SPACE
        if len(letters) > 3:
            raise ValueError(f"U+{code:04X} becomes {len(letters)} letters; expected at most 3.")
        table["kind"][code] = kind
        # A space stays one letter, so that it can separate words before it is dropped.
        table["count"][code] = 1 if kind == SPACE else len(letters)
        if letters and code not in _HANGUL:
            first, second, third = map(ord, letters.ljust(3, "\0"))
            table["shift"][code] = first - code
            table["second"][code], table["third"][code] = second, third
    return table


@program("gpt1_keras.tokenization.normalization.build_bert_table")
def main() -> None:
    """Rebuild bert_table.npz from the installed `tokenizers`."""
    path = os.path.join(os.path.dirname(__file__), TABLE_FILE)
    arrays: dict[str, Any] = {}
    for name, values in build().items():
        arrays[f"{name}_pages"], arrays[f"{name}_page_of"] = CodePointTable.compress(values)
    with atomic_path(path) as temporary:
        np.savez_compressed(temporary, **arrays)
    print(f"{path}: {os.path.getsize(path):,} bytes")


if __name__ == "__main__":
    sys.exit(main())

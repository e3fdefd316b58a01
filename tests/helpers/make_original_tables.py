"""Rebuilds resources.json, the `original` normalization's rules, from two wheels.

    pip download --no-deps --dest WHEELS ftfy==6.3.1
    pip download --no-deps --dest WHEELS --only-binary :all: --python-version 3.6 \\
        --implementation cp --abi cp36m --platform manylinux1_x86_64 spacy==2.0.18
    python -m tests.helpers.make_original_tables WHEELS

Neither package is installed, nor needed afterwards. Building needs `regex` and `wcwidth`, which
they import. All that depends on Unicode is enumerated here, code point by code point, so that the
graph behaves the same under every version of TensorFlow.
"""

import dataclasses
import hashlib
import html
import json
import os
import pathlib
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from gpt1_keras.cli import option, program
from gpt1_keras.files import atomic_path
from gpt1_keras.tokenization.normalization.original.resources import RESOURCES_FILE
from tests.helpers.re2_patterns import (
    badness_pattern,
    char_class,
    mojibake_patterns,
    splitting_patterns,
)
from tests.helpers.spacy_rules import (
    SpacyRules,
    read_spacy_rules,
)

SOURCES = {
    "spacy-2.0.18-cp36-cp36m-manylinux1_x86_64.whl": (
        "fbaba13090b05576c7fd507afceb571a6af92911973e6bd3eee1f99b8cbbccc1"
    ),
    "ftfy-6.3.1-py3-none-any.whl": (
        "7c70eb532015cd2f9adb53f101fb6c7945988d023a085d127d1573dc49dd0083"
    ),
}
_CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
_BLOCK = 256  # code points
_HANGUL = {chr(code) for code in range(0xAC00, 0xD7A4)}  # composed by arithmetic instead


def find_wheels(folder: str | os.PathLike[str]) -> list[pathlib.Path]:
    """Finds the two published wheels in a folder, and returns the paths of spaCy's and ftfy's.

    Raises:
        FileNotFoundError: a wheel is missing.
        ValueError: a wheel is not the published one.
    """
    paths = []
    for name, expected in SOURCES.items():
        path = pathlib.Path(folder) / name
        if not path.is_file():
            raise FileNotFoundError(f"The wheel {str(path)!r} does not exist.")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != expected:
            raise ValueError(
                f"{path} is not the published wheel: its SHA-256 is {found}; expected {expected}."
            )
        paths.append(path)
    return paths


def build(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Makes the tables from the wheels in a folder; see `make_resources` and `find_wheels`."""
    spacy_wheel, ftfy_wheel = find_wheels(folder)
    sys.path.insert(0, str(ftfy_wheel))
    return make_resources(read_spacy_rules(spacy_wheel))


def make_resources(rules: SpacyRules) -> dict[str, Any]:
    """Enumerates what spaCy's rules do, and the `ftfy` that can be imported.

    Returns:
        The tables, as in resources.json; see `resources.load_resources`.
    """
    from ftfy import badness, chardata, fix_text

    def clean(text: str) -> str:
        return fix_text(text, fix_encoding=False, explain=False)

    def unescape(text: str) -> str:
        return html.unescape("".join(f"&#{ord(character)};" for character in text))

    return {
        "sources": SOURCES,
        "unicode": unicodedata.unidata_version,
        "patterns": {
            **splitting_patterns(rules),
            "bad": badness_pattern(badness.BADNESS_RE.pattern),
            **mojibake_patterns(chardata.UTF8_CLUES),
            "escape": r"\x1b\[[" + char_class(r"\d", re) + ";]*[a-zA-Z]",
            "space": "[" + char_class(r"[^\S\n]", re) + "]",
        },
        "exceptions": {
            chunk: tokens
            for chunk, tokens in sorted(rules.exceptions.items())
            if standardize(clean(chunk)) == chunk
        },
        "characters": _changed(clean, _CHARACTERS[0x80:]),
        "compositions": _compositions(),
        "entities": chardata.HTML_ENTITIES,
        "references": _changed(unescape, _CHARACTERS),
        "encodings": {name: bytes(range(256)).decode(name) for name in chardata.CHARMAP_ENCODINGS},
    }


def standardize(text: str) -> str:
    """GPT-1's own clean-up after ftfy's: dashes, punctuation, white space.

    It is `text_standardize` of openai/finetune-transformer-lm.
    """
    for character, replacement in (("—", "-"), ("–", "-"), ("―", "-"), ("…", "..."), ("´", "'")):
        text = text.replace(character, replacement)
    # The original was meant to match runs of backslashes, too; as its string is not raw, it matches
    # runs of a plus twice.
    runs = "|".join(f"{re.escape(character)}+" for character in '-~!";?+,)(/*[]}{|_')
    text = re.sub(f"({runs})", r" \1 ", text)
    text = re.sub(r"\s*\n\s*", " \n ", text)
    return re.sub(r"[^\S\n]+", " ", text).strip()


def _changed(function: Callable[[str], str], characters: Sequence[str]) -> dict[str, str]:
    """Returns the code points that a function of texts changes, with what it makes of them."""
    made: dict[str, str] = {}
    for start in range(0, len(characters), _BLOCK):
        block = characters[start : start + _BLOCK]
        if function("".join(block)) != "".join(block):  # few blocks change
            made |= {character: function(character) for character in block}
    return {character: text for character, text in made.items() if text != character}


def _compositions() -> dict[str, str]:
    """Returns the pairs of code points that compose to one, with this one.

    They are Unicode's pairs, and those that it composes only after reordering marks.
    """
    pairs = {}
    composed = [c for c in _CHARACTERS if unicodedata.normalize("NFC", c) == c]
    rights = {
        unicodedata.normalize("NFD", c)[-1]
        for c in composed
        if c not in _HANGUL and unicodedata.normalize("NFD", c) != c
    }
    lefts = {unicodedata.normalize("NFC", unicodedata.normalize("NFD", c)[:-1]) for c in composed}
    lefts |= {c for c in composed if unicodedata.normalize("NFD", c) != c}
    for left in sorted(x for x in lefts if len(x) == 1 and x not in _HANGUL):
        for right in sorted(rights):
            joined = unicodedata.normalize("NFC", left + right)
            if len(joined) == 1:
                pairs[left + right] = joined
    return pairs


@dataclasses.dataclass(frozen=True)
class Options:
    wheels: str = option("folder with both wheels", name="wheels")


@program("tests.helpers.make_original_tables")
def main(options: Options) -> None:
    """Rebuild resources.json from spaCy's and ftfy's published wheels."""
    tables = build(options.wheels)
    with atomic_path(RESOURCES_FILE) as temporary:
        text = json.dumps(tables, ensure_ascii=False, separators=(",", ":"))
        pathlib.Path(temporary).write_text(text + "\n", encoding="utf-8")
    print(f"{RESOURCES_FILE}: {os.path.getsize(RESOURCES_FILE):,} bytes")


if __name__ == "__main__":
    sys.exit(main())

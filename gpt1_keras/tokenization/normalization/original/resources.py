"""The tables of the `original` normalization, made by tests/helpers/make_original_tables.py."""

import functools
import json
import pathlib
from typing import Any

RESOURCES_FILE = pathlib.Path(__file__).with_name("resources.json")


@functools.cache
def load_resources() -> dict[str, Any]:
    """Reads resources.json, a dict:

    - `sources`: the SHA-256 of each wheel that it was made from.
    - `unicode`: the version of Unicode.
    - `patterns`: RE2 patterns by name.
    - `exceptions`: those of spaCy's exceptions that can occur, with the list of their tokens.
    - `characters`: code points above ASCII that ftfy changes, with what it makes of them.
    - `compositions`: pairs of code points, with the code point that NFC composes them to.
    - `entities`: HTML entities, with what they stand for.
    - `references`: code points that `&#...;` does not stand for, with what it stands for instead.
    - `encodings`: encodings in which text may have been misread, with the text of their 256 bytes.
    """
    return json.loads(RESOURCES_FILE.read_text(encoding="utf-8"))

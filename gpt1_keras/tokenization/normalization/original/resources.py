"""The tables of the `original` normalization, made by build_resources.py."""

import functools
import json
import os
from typing import Any

RESOURCES_FILE = "resources.json"


@functools.cache
def load_resources() -> dict[str, Any]:
    """Reads resources.json, a dict:

    - `sources`: the SHA-256 of each wheel it was made from; `unicode`: the version of Unicode.
    - `patterns`: RE2 patterns by name.
    - `exceptions`: spaCy's exceptions that can occur, each with the list of its tokens.
    - `characters`: what ftfy makes of single code points beyond ASCII, where it changes them.
    - `compositions`: pairs of code points, and the code point that NFC composes them to.
    - `entities`: HTML entities; `references`: code points that `&#...;` does not decode to itself.
    - `encodings`: the 256 code points of each encoding in which text may have been misread.
    """
    path = os.path.join(os.path.dirname(__file__), RESOURCES_FILE)
    with open(path, encoding="utf-8") as file:
        return json.load(file)

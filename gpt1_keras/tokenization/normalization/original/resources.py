"""The tables of the original normalisation, as build_resources.py made them."""

import functools
import json
import os

RESOURCES_FILE = "resources.json"


@functools.cache
def load_resources():
    """Reads resources.json, a dict:

    - `sources`: the SHA-256 of each wheel that it was made from; `unicode`: the version.
    - `patterns`: RE2 patterns by name.
    - `exceptions`: spaCy's exceptions that can occur, each with the list of its tokens.
    - `characters`: what ftfy makes of single characters beyond ASCII, where it changes them.
    - `compositions`: pairs of characters, and the character that NFC joins them to.
    - `entities`: HTML entities; `references`: characters that `&#...;` does not give as they are.
    - `encodings`: the 256 characters of each encoding that text may wrongly have been read in.
    """
    path = os.path.join(os.path.dirname(__file__), RESOURCES_FILE)
    with open(path, encoding="utf-8") as file:
        return json.load(file)

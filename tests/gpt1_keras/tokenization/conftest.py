"""What the tests of the tokenizer share."""

import json
import pathlib

import pytest

from tests.helpers.random_unicode import make_reference


@pytest.fixture(scope="module")
def reference(original_files):
    """Hugging Face's tokenizer with the original files."""
    vocabulary, merges = (pathlib.Path(path).read_text("utf-8") for path in original_files)
    pairs = [tuple(line.split(" ")) for line in merges.split("\n")[1:] if line]
    return make_reference(json.loads(vocabulary), pairs)

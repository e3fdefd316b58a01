"""What the tests of the tokenizer share."""

import json
import pathlib

import pytest
import tensorflow as tf

from tests.helpers.random_unicode import make_reference


@pytest.fixture(scope="module")
def reference(original_files):
    """Hugging Face's tokenizer with the original files."""
    vocabulary, merges = (pathlib.Path(path).read_text("utf-8") for path in original_files)
    pairs = [tuple(line.split(" ")) for line in merges.split("\n")[1:] if line]
    return make_reference(json.loads(vocabulary), pairs)


@pytest.fixture(scope="module")
def save_graph(tmp_path_factory):
    """Saves a SavedModel with one signature, a function of texts; returns its path."""

    def save(tokenizer, function):
        module = tf.Module()
        module.tokenizer = tokenizer
        signature = tf.function(
            function, input_signature=[tf.TensorSpec([None], tf.string, "text")]
        )
        path = tmp_path_factory.mktemp("tokenizer") / "1"
        tf.saved_model.save(module, str(path), signatures={"serving_default": signature})
        return path

    return save

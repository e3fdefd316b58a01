"""What the tests of the `original` normalization share."""

import os

import pytest
import tensorflow as tf

import gpt1_keras
from benchmarks.peers.python_pipeline import PipelineTokenizer, PythonPipeline
from gpt1_keras.tokenization.normalization.original.original_normalizer import OriginalNormalizer
from gpt1_keras.tokenization.padding import join_rows


@pytest.fixture(scope="session")
def split():
    """Splits texts in a graph: from list of str or bytes to list of lists of str."""
    normalizer = OriginalNormalizer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def words(texts):
        return join_rows(*normalizer.split(texts))

    def split(texts):
        found = words(tf.constant(texts, tf.string)).to_list()
        return [[word.decode() for word in text] for text in found]

    split(["a"])  # makes the graph, which no test's time counts
    return split


@pytest.fixture(scope="session")
def pipeline():
    """The Python pipeline: from str to list of str."""
    return PythonPipeline()


@pytest.fixture(scope="session")
def tokenizer(original_files):
    """The tokenizer that the published weights were trained with."""
    return gpt1_keras.GPT1Tokenizer(*original_files, normalization="original")


@pytest.fixture(scope="session")
def reference(original_files):
    """The Python pipeline and Hugging Face's byte-pair encoding: from str to list of ids."""
    return PipelineTokenizer(os.path.dirname(original_files[0]))

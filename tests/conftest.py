"""What all tests share: where the data lies, small models, and a run in the C++ runtime."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import pytest

import gpt1_keras

# Real data sets, the original BPE files and the C++ runner lie outside the repository.
SHARED = pathlib.Path(os.environ.get("GPT1_KERAS_SHARED", "../shared")).absolute()
DATA = SHARED / "data"


def _require(path):
    if not path.exists():
        pytest.skip(f"{path} is not here; set GPT1_KERAS_SHARED to the folder that holds it")
    return path


@pytest.fixture(scope="session")
def original_files():
    """Paths of the original vocabulary and merges."""
    folder = _require(DATA / "gpt1_bpe")
    return str(folder / "encoder_bpe_40000.json"), str(folder / "vocab_40000.bpe")


@pytest.fixture(scope="session")
def tfds_dir():
    """The folder of prepared TensorFlow Datasets."""
    return str(_require(DATA / "tfds"))


@pytest.fixture(scope="session")
def books_dir():
    """The folder of books, with train/ and valid/."""
    return _require(DATA / "books")


@pytest.fixture(scope="session")
def original_tokenizer(original_files):
    return gpt1_keras.GPT1Tokenizer(*original_files)


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """A tokenizer learned from a few sentences."""
    texts = ["a good film, and a lovely one", "a bad film, and a dull one", "the staff were kind"]
    return gpt1_keras.GPT1Tokenizer.learn(texts * 3, num_merges=60)


@pytest.fixture
def tiny_backbone(tiny_tokenizer):
    keras.utils.set_random_seed(0)
    return gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(),
        num_layers=2,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=128,
        max_sequence_length=64,
    )


@pytest.fixture(scope="session")
def run_cpp():
    """Runs a signature in TensorFlow's C++ runtime, without Python TensorFlow."""
    tool = _require(SHARED / "tools" / "run_saved_model.py")

    def run(directory, signature, **inputs):
        command = [sys.executable, str(tool), str(directory), "--like-server"]
        command += ["--signature", signature]
        for name, value in inputs.items():
            command += ["--input", f"{name}={json.dumps(value)}"]
        process = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return run

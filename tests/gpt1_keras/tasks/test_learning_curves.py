"""The same script learns the same on every backend of Keras."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import gpt1_keras
from tests.helpers.learning_curve import learning_curve

SCRIPT = pathlib.Path(__file__).parents[2] / "helpers" / "learning_curve.py"
BACKENDS = [name for name in ("jax", "torch") if importlib.util.find_spec(name)]


@pytest.fixture(scope="module")
def preset(tiny_tokenizer, tmp_path_factory):
    """A classifier with random weights and no dropout."""
    keras.utils.set_random_seed(0)
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    backbone = gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(), max_sequence_length=16, dropout=0.0, **sizes
    )
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, sequence_length=16)
    classifier = gpt1_keras.GPT1TextClassifier(backbone, 2, preprocessor, dropout=0.0)
    folder = tmp_path_factory.mktemp("preset")
    classifier.save_to_preset(folder)
    return str(folder)


@pytest.fixture(scope="module")
def curve(preset):
    return learning_curve(preset)


@pytest.mark.slow
def test_the_loss_falls(curve):
    assert len(curve) == 12 and curve[0] > 2.0  # with L1
    assert curve[-1] < curve[0] - 0.2


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_on_other_backends(preset, curve, backend):
    root = SCRIPT.parents[2]
    process = subprocess.run(
        [sys.executable, str(SCRIPT), preset],
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(root),
        },
    )
    assert process.returncode == 0, process.stderr
    np.testing.assert_allclose(json.loads(process.stdout.splitlines()[-1]), curve, atol=1e-4)

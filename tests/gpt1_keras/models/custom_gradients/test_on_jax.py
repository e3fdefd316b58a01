"""Runs the tests of what needs no TensorFlow where TensorFlow is not installed."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[3]
FOLDER = "gpt1_keras/models/custom_gradients"
FILES = [
    f"{FOLDER}/test_causal_attention.py",
    f"{FOLDER}/test_gelu_dense.py",
    f"{FOLDER}/test_layer_norm.py",
    f"{FOLDER}/test_linear_cross_entropy.py",
    "gpt1_keras/test_upstream.py",
]


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
@pytest.mark.slow
def test_the_same_on_jax():
    files = [str(TESTS / name) for name in FILES]
    process = subprocess.run(
        [sys.executable, str(TESTS / "helpers/without_tensorflow.py"), "pytest", "-q", *files],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=TESTS.parent,
        # Most of it is compiling, and small functions need no optimization.
        env={**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0"},
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert " passed" in process.stdout

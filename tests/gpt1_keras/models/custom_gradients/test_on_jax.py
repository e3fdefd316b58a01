"""What needs no TensorFlow, tested where there is none."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

HERE, TESTS = pathlib.Path(__file__).parent, pathlib.Path(__file__).parents[3]
FILES = ["test_linear_cross_entropy.py", "test_custom_gradients.py", "test_lstm.py"]


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_the_lean_operations_are_the_same_on_jax():
    files = [str(HERE / name) for name in FILES]
    process = subprocess.run(
        [sys.executable, str(TESTS / "helpers/without_tensorflow.py"), "pytest", "-q", *files],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=TESTS.parent,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert " passed" in process.stdout

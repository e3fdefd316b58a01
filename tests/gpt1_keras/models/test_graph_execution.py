"""What TensorFlow compiles, dropout's booleans, and all custom gradients on JAX."""

import functools
import importlib.util
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from gpt1_keras.models import graph_execution, linear_cross_entropy
from gpt1_keras.models.graph_execution import random_mask
from gpt1_keras.models.layers import Dropout
from gpt1_keras.models.transformer_block import gelu_dense
from tests.gpt1_keras.models import test_custom_gradients

TESTS = pathlib.Path(__file__).parents[2]
DTYPES = [("float32", 2e-6), ("bfloat16", 4e-2)]


@pytest.fixture
def always(monkeypatch):
    """Takes all tensors for large ones."""
    monkeypatch.setattr(graph_execution, "LEAST_ELEMENTS", 0)


@pytest.fixture
def run(value_and_gradients):
    return functools.partial(value_and_gradients, open_axes=[])


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_gelu(dtype, tolerance, always, run):
    test_custom_gradients.test_gelu_with_its_dense_layer(
        dtype, tolerance, "graph", lambda *arguments, open_axes: run(*arguments)
    )


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_normalization(dtype, tolerance, always, value_and_gradients):
    test_custom_gradients.test_layer_norm(dtype, tolerance, 30.0, "graph", value_and_gradients)


@pytest.mark.parametrize("dropout", [False, True])
def test_attention_in_blocks(dropout, always, run):
    test_custom_gradients.test_attention(dropout, 129, "graph", run)


@pytest.mark.parametrize("chunks", [1, 2])
def test_cross_entropy(chunks, always, run, monkeypatch):
    rows = test_custom_gradients.VOCABULARY * -(-23 // chunks)
    monkeypatch.setattr(linear_cross_entropy, "MAX_LOGITS", rows)
    arguments = test_custom_gradients.loss_problem()
    found = run(test_custom_gradients.in_training, arguments, 2, mode="graph")
    test_custom_gradients.assert_losses_close(
        found, test_custom_gradients.loss_by_torch(*arguments)
    )


def compiled_calls(shape, spec=None):
    """The outputs of each compiled function that GELU and its gradient call in a graph."""

    @tf.function(input_signature=[tf.TensorSpec(spec or shape)], autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = gelu_dense(x, tf.eye(shape[-1]), tf.zeros(shape[-1]))
        return tape.gradient(y, x)

    graph = gradient.get_concrete_function().graph
    calls = [op for op in graph.get_operations() if op.type.endswith("PartitionedCall")]
    assert all(op.get_attr("_XlaMustCompile") for op in calls)
    return [len(op.outputs) for op in calls]


def test_what_is_compiled():
    """Large tensors of known shape; nothing is kept for a gradient beside what is returned."""
    rows = graph_execution.LEAST_ELEMENTS // 8
    assert compiled_calls([rows, 8]) == [1, 2]
    assert compiled_calls([rows - 1, 8]) == []
    assert compiled_calls([rows, 8], [None, 8]) == []


def test_eagerly_nothing_is_compiled(always):
    x = tf.ones([2, 3])
    np.testing.assert_allclose(gelu_dense(x, tf.eye(3), tf.zeros(3)), 0.841192, rtol=1e-5)


def sample(shape, probability, seed=0, **jit):
    generator = keras.random.SeedGenerator(seed)
    return tf.function(lambda: random_mask(shape, probability, generator), **jit)().numpy()


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("probability", [0.9, 0.5, 0.001, 1.0])
def test_how_many_are_true(probability, jit_compile):
    mask = sample((300, 401, 7), probability, jit_compile=jit_compile)
    assert mask.shape == (300, 401, 7) and mask.dtype == bool
    expected = round(probability * 2**16) / 2**16
    found = scipy.stats.binomtest(int(mask.sum()), mask.size, expected).pvalue
    assert found > 1e-4


def test_neighbours_are_independent():
    """Also the four that come from one number."""
    mask = sample((250_000, 4), 0.5).astype(int)
    table = np.bincount(mask @ [1, 2, 4, 8], minlength=16)
    assert scipy.stats.chisquare(table).pvalue > 1e-4
    assert abs(np.corrcoef(mask[:-1, 3], mask[1:, 0])[0, 1]) < 0.01


def test_seeds():
    first, again, other = (sample((1000,), 0.5, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    generator = keras.random.SeedGenerator(1)
    masks = [np.array(random_mask((1000,), 0.5, generator)) for _ in range(2)]
    assert np.array_equal(masks[0], first) and not np.array_equal(*masks)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5])
def test_open_shapes(size):
    generator = keras.random.SeedGenerator(0)
    function = tf.function(
        lambda x: random_mask((tf.shape(x)[0], 3), 0.5, generator),
        input_signature=[tf.TensorSpec([None])],
    )
    assert function(tf.zeros(size)).shape == (size, 3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dropout_keeps_the_mean(dtype):
    layer = Dropout(0.1, seed=0, dtype=dtype)
    x = keras.ops.ones((400, 500), dtype)
    assert layer(x, training=False) is x
    dropped = layer(x, training=True)
    assert keras.backend.standardize_dtype(dropped.dtype) == dtype
    dropped = np.array(keras.ops.cast(dropped, "float32"))
    np.testing.assert_allclose(np.unique(dropped), [0.0, 1 / 0.9], rtol=4e-3)
    assert dropped.mean() == pytest.approx(1.0, abs=5e-3)
    assert Dropout(0.0, dtype=dtype)(x, training=True) is x


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
@pytest.mark.slow
def test_the_same_on_jax():
    files = [str(pathlib.Path(test_custom_gradients.__file__))]
    files.append(str(TESTS / "gpt1_keras/test_upstream.py"))
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

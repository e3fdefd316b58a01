"""The custom gradients for large tensors: against torch, and really compiled."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from gpt1_keras.models.custom_gradients import graph_execution, linear_cross_entropy
from gpt1_keras.models.custom_gradients.elementwise import gelu_dense
from tests.gpt1_keras.models.custom_gradients import (
    test_causal_attention,
    test_gelu_dense,
    test_layer_norm,
    test_linear_cross_entropy,
)

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
    test_gelu_dense.test_gelu_with_its_dense_layer(
        dtype, tolerance, "graph", lambda *arguments, open_axes: run(*arguments)
    )


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_normalization(dtype, tolerance, always, value_and_gradients):
    test_layer_norm.test_layer_norm(dtype, tolerance, 30.0, "graph", value_and_gradients)


@pytest.mark.parametrize("dropout", [False, True])
def test_attention_in_blocks(dropout, always, run):
    test_causal_attention.test_attention(dropout, 129, "graph", run)


@pytest.mark.parametrize("chunks", [1, 2])
def test_cross_entropy(chunks, always, run, monkeypatch):
    rows = test_linear_cross_entropy.VOCABULARY * -(-23 // chunks)
    monkeypatch.setattr(linear_cross_entropy, "MAX_LOGITS", rows)
    arguments = test_linear_cross_entropy.problem()
    found = run(test_linear_cross_entropy.in_training, arguments, 2, mode="graph")
    test_linear_cross_entropy.assert_close(found, test_linear_cross_entropy.reference(*arguments))


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

"""The chunked cross-entropy against torch's in float64: values, gradients, and what is in memory.

`test_on_jax.py` runs all of it on the JAX backend too.
"""

import functools

import keras
import numpy as np
import pytest
import torch

from gpt1_keras.models.custom_gradients import linear_cross_entropy as module
from gpt1_keras.models.custom_gradients.linear_cross_entropy import linear_cross_entropy

VOCABULARY, WIDTH = 37, 8
IS_TENSORFLOW = keras.backend.backend() == "tensorflow"


def problem(rows=23, dtype="float32", seed=0):
    """States, table, targets and weights, some of which are zero."""
    random = np.random.default_rng(seed)
    states = random.normal(0.0, 1.0, (rows, WIDTH))
    table = random.normal(0.0, 1.0, (VOCABULARY, WIDTH))
    targets = random.integers(0, VOCABULARY, rows).astype("int32")
    weights = (random.uniform(0.5, 2.0, rows) * (np.arange(rows) % 4 != 1)).astype("float32")
    states, table = (keras.ops.cast(array, dtype) for array in (states, table))
    return states, table, targets, weights


def reference(states, table, targets, weights, upstream=1.0):
    """The loss and its gradients in float64, by torch."""
    states, table = (
        torch.tensor(np.array(keras.ops.cast(array, "float32"), np.float64), requires_grad=True)
        for array in (states, table)
    )
    losses = torch.nn.functional.cross_entropy(
        states @ table.T, torch.tensor(targets).long(), reduction="none"
    )
    loss = (losses * torch.tensor(weights)).sum()
    (upstream * loss).backward()
    return [loss.detach().numpy(), states.grad.numpy(), table.grad.numpy()]


def assert_close(found, expected, tolerance=1e-5):
    for ours, theirs in zip(found, expected, strict=True):
        assert np.all(np.isfinite(ours))
        scale = max(np.abs(theirs).max(), 1e-30)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)


def in_training(*arguments, **keywords):
    return linear_cross_entropy(*arguments, training=True, **keywords)


@pytest.fixture
def run(value_and_gradients):
    """The loss, and its gradients by the first arguments."""
    return functools.partial(value_and_gradients, open_axes=[[0], [], [0], [0]])


@pytest.fixture
def in_chunks(monkeypatch):
    """Sets how many chunks a number of rows falls into."""

    def set_chunks(rows, chunks):
        monkeypatch.setattr(module, "MAX_LOGITS", -(-rows // chunks) * VOCABULARY)

    return set_chunks


@pytest.mark.parametrize("chunks", [1, 2, 5])  # of which 23 rows fill the last one only in part
def test_loss_and_gradients(chunks, mode, in_chunks, run):
    in_chunks(23, chunks)
    arguments = problem()
    found = run(in_training, arguments, 2, mode=mode)
    assert_close(found, reference(*arguments))


def test_the_last_rows_of_the_table_take_no_part(mode, in_chunks, run):
    """As if the table ended before them; they get no gradient."""
    in_chunks(23, 2)
    states, table, targets, weights = problem()
    arguments = (states, table, targets % 30, weights)
    expected = reference(states, table[:30], targets % 30, weights)
    without = functools.partial(in_training, num_untrained_tokens=VOCABULARY - 30)
    loss, states_gradient, table_gradient = run(without, arguments, 2, mode=mode)
    assert_close([loss, states_gradient, table_gradient[:30]], expected)
    assert np.all(table_gradient[30:] == 0.0)


@pytest.mark.parametrize("chunks", [1, 5])
def test_inference_gives_the_same_loss(chunks, mode, in_chunks, run):
    in_chunks(23, chunks)
    arguments = problem()
    found = run(linear_cross_entropy, arguments, 0, mode=mode)
    assert_close(found, reference(*arguments)[:1])
    trained = run(in_training, arguments, 2, mode=mode)
    assert found[0] == pytest.approx(trained[0], rel=1e-6)


def test_the_number_of_chunks_does_not_matter_where_it_is_open(in_chunks, run):
    """One graph for any number of rows. JAX compiles for each."""
    in_chunks(10, 1)
    mode = "open" if IS_TENSORFLOW else "xla"
    for rows in (1, 9, 10, 11, 30, 31) if IS_TENSORFLOW else (1, 10, 31):
        arguments = problem(rows, seed=rows)
        assert_close(run(in_training, arguments, 2, mode=mode), reference(*arguments))


def test_a_row_is_more_than_may_be_in_memory(mode, monkeypatch, run):
    monkeypatch.setattr(module, "MAX_LOGITS", VOCABULARY - 1)
    arguments = problem(rows=3)
    assert_close(run(in_training, arguments, 2, mode=mode), reference(*arguments))


@pytest.mark.parametrize("training", [True, False])
def test_no_rows_cost_nothing(training, mode, run):
    def function(*arguments):
        return linear_cross_entropy(*arguments, training=training)

    count = 2 if training else 0
    found = run(function, problem(rows=0), count, mode=mode)
    assert found[0] == 0.0
    assert all(np.all(gradient == 0.0) for gradient in found[1:])


@pytest.mark.parametrize("rows", [1, 7])
def test_weights_of_zero_cost_nothing(rows, mode, in_chunks, run):
    in_chunks(7, 2)
    states, table, targets, weights = problem(rows)
    arguments = (states, table, targets, np.zeros_like(weights))
    for array in run(in_training, arguments, 2, mode=mode):
        assert np.all(array == 0.0)


def test_rows_of_weight_zero_get_no_gradient(mode, in_chunks, run):
    in_chunks(23, 5)
    arguments = problem()
    _, gradient, _ = run(in_training, arguments, 2, mode=mode)
    assert np.array_equal(np.any(gradient, axis=1), arguments[-1] > 0)


def test_an_upstream_gradient(mode, in_chunks, run):
    in_chunks(23, 2)
    arguments = problem()

    def cubed(*arguments):
        return in_training(*arguments) ** 3

    loss = reference(*arguments)[0]
    found = run(cubed, arguments, 2, mode=mode)
    expected = reference(*arguments, upstream=3 * loss**2)
    assert_close(found[1:], expected[1:])


def test_logits_far_from_zero(run):
    states, table, targets, weights = problem()
    arguments = (states * 100.0, table, targets, weights)
    assert_close(run(in_training, arguments, 2), reference(*arguments))


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 3e-2), ("float16", 4e-3)])
@pytest.mark.parametrize("chunks", [1, 5])
def test_half_precision(chunks, dtype, tolerance, mode, in_chunks, run):
    in_chunks(23, chunks)
    arguments = problem(dtype=dtype)
    found = run(in_training, arguments, 2, mode=mode)
    assert_close(found, reference(*arguments), tolerance)


def test_float16_keeps_the_gradients_of_a_mean(mode, in_chunks, run):
    """A share of 1e-6 of a loss lies below what float16 holds, until the loss is scaled."""
    in_chunks(200, 5)
    states, table, targets, weights = problem(200, "float16")
    arguments = (states, table, targets, weights * np.float32(1e-6))
    found = run(in_training, arguments, 2, np.float32(2.0**15), mode)
    expected = reference(*arguments, upstream=2.0**15)
    assert 0 < np.abs(found[1][0]).min()
    assert_close(found, expected, 1e-2)


if IS_TENSORFLOW:
    import tensorflow as tf
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph


def traced_shapes(function, *arguments):
    """The shapes of all tensors of a traced function, and of those that it calls."""
    graph = tf.function(function).get_concrete_function(*arguments).graph
    graphs = [graph]
    with graph.as_default():
        for definition in graph.as_graph_def().library.function:
            graphs.append(function_def_to_graph(definition))
    operations = [operation for graph in graphs for operation in graph.get_operations()]
    # The inputs of a function are outputs elsewhere.
    tensors = [tensor for op in operations if op.type != "Placeholder" for tensor in op.outputs]
    return [tensor.shape for tensor in tensors if tensor.dtype.is_floating]


@pytest.mark.skipif(not IS_TENSORFLOW, reason="reads TensorFlow's graph")
def test_all_logits_are_never_in_memory_at_once(in_chunks):
    rows, chunks = 60, 5
    arguments = [tf.convert_to_tensor(array) for array in problem(rows)]

    def step(states, table, targets, weights):
        with tf.GradientTape() as tape:
            tape.watch([states, table])
            loss = in_training(states, table, targets, weights)
        return loss, tape.gradient(loss, [states, table])

    in_chunks(rows, 1)
    assert [rows, VOCABULARY] in traced_shapes(step, *arguments)

    in_chunks(rows, chunks)
    shapes = traced_shapes(step, *arguments)
    assert all(shape.is_fully_defined() for shape in shapes)
    assert [rows // chunks, VOCABULARY] in shapes
    assert max(shape.num_elements() for shape in shapes) < rows * VOCABULARY / 2

"""Gradients written by hand against torch's autograd in float64: values, gradients, and memory.

`test_graph_execution.py` runs all of it on the JAX backend too.
"""

import functools

import keras
import numpy as np
import pytest
import torch

from gpt1_keras.models import linear_cross_entropy as module
from gpt1_keras.models.attention import causal_attention
from gpt1_keras.models.linear_cross_entropy import linear_cross_entropy
from gpt1_keras.models.transformer_block import gelu_dense, layer_norm

IS_TENSORFLOW = keras.backend.backend() == "tensorflow"
if IS_TENSORFLOW:
    import tensorflow as tf
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

KEEP = 0.7
VOCABULARY, WIDTH = 37, 8


def in_double(array):
    """Makes a leaf of torch's graph, float64, of an array of any type on any backend."""
    return torch.tensor(np.array(keras.ops.cast(array, "float32"), np.float64), requires_grad=True)


def assert_close(found, expected, tolerance=1e-5, least=0.1):
    """Compares arrays, each by its largest value."""
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        # Some gradients are 0 because terms of about 1 cancel.
        atol = tolerance * max(np.abs(theirs).max(), least)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


# Attention


@pytest.fixture
def run_attention(value_and_gradients):
    """An operation's value, and its gradients by the first arguments."""
    return functools.partial(value_and_gradients, open_axes=[[0, 2]] * 3 + [[0, 2, 3]])


def attend(query, key, value, keep):
    """Attention with dropout that keeps what `keep` `[batch, heads, length, length]` says."""

    def sample_kept(shape):
        queries, keys = shape[2:]
        return keep[:, :, keys - queries : keys, :keys]

    return causal_attention(query, key, value, sample_kept, KEEP)


def attention_problem(length, dtype="float32"):
    """Query, key, value, a dropout mask, and the upstream gradient."""
    random = np.random.default_rng(length)
    shapes = [(2, 3, length, 4)] * 3 + [(2, length, 3, 4)]
    arrays = [random.normal(0.0, 1.0, shape) for shape in shapes]
    query, key, value, upstream = (keras.ops.cast(array, dtype) for array in arrays)
    keep = random.uniform(size=(2, 3, length, length)) < KEEP
    return [query, key, value, keep], upstream


def attention_by_torch(query, key, value, keep, upstream, hidden=None):
    """The output of the whole attention at once and its gradients, by torch.

    `hidden`, bool `[batch, length, length]`, says what is not visible though it is past.
    """
    query, key, value = arrays = [in_double(array) for array in (query, key, value)]
    length = query.shape[2]
    scores = query @ key.transpose(2, 3) / query.shape[3] ** 0.5
    scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
    if hidden is not None:
        scores = scores.masked_fill(torch.tensor(hidden)[:, None], -torch.inf)
    probabilities = scores.softmax(-1)
    if keep is not None:
        probabilities = probabilities * torch.tensor(keep) / KEEP
    output = (probabilities @ value).transpose(1, 2)
    output.backward(in_double(upstream))
    return [output.detach().numpy(), *(array.grad.numpy() for array in arrays)]


def test_branches_after_a_shared_prefix(mode, run_attention):
    """A prefix of 50 tokens and two branches of 100 that do not see each other."""
    (query, key, value, _), upstream = attention_problem(250)
    branches = np.repeat([0, 1, 2], [50, 100, 100])[None].repeat(2, axis=0)
    hidden = (branches[:, None] != 0) & (branches[:, :, None] != branches[:, None])

    def attend(query, key, value):
        return causal_attention(query, key, value, branches=keras.ops.convert_to_tensor(branches))

    found = run_attention(attend, [query, key, value], 3, upstream, mode, open_axes=[[0, 2]] * 3)
    assert_close(found, attention_by_torch(query, key, value, None, upstream, hidden))


@pytest.mark.parametrize("length", [1, 5, 128, 129, 300])
@pytest.mark.parametrize("dropout", [False, True])
def test_attention(dropout, length, mode, run_attention):
    (query, key, value, keep), upstream = attention_problem(length)
    if dropout:
        found = run_attention(attend, [query, key, value, keep], 3, upstream, mode)
    else:
        arguments, axes = [query, key, value], [[0, 2]] * 3
        found = run_attention(causal_attention, arguments, 3, upstream, mode, open_axes=axes)
        keep = None
    if length > 1:
        assert min(np.abs(array).max() for array in found) > 0.1
    assert_close(found, attention_by_torch(query, key, value, keep, upstream))


@pytest.mark.skipif(not IS_TENSORFLOW, reason="JAX compiles for one length")
def test_attention_of_an_open_batch(run_attention):
    arguments, upstream = attention_problem(130)
    found = run_attention(attend, arguments, 3, upstream, "open", open_axes=[[0]] * 4)
    assert_close(found, attention_by_torch(*arguments, upstream))


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 3e-2), ("float16", 4e-3)])
def test_attention_in_half_precision(dtype, tolerance, mode, run_attention):
    (query, key, value, keep), upstream = attention_problem(140, dtype)
    found = run_attention(attend, [query, key, value, keep], 3, upstream, mode)
    assert_close(found, attention_by_torch(query, key, value, keep, upstream), tolerance)


def test_attention_scores_far_from_zero(mode, run_attention):
    (query, key, value, keep), upstream = attention_problem(140)
    arguments = [query * 30.0, key * 30.0, value, keep]
    found = run_attention(attend, arguments, 3, upstream, mode)
    expected = attention_by_torch(*arguments, upstream)
    assert_close(found, expected, 1e-3)  # scores of some 1,000 have 4 digits after the point


def test_later_positions_change_nothing_before_them(mode, run_attention):
    """Nor do they get a gradient from there."""
    (query, key, value, _), upstream = attention_problem(140)
    upstream = upstream * (np.arange(140) < 130)[:, None, None].astype("float32")
    arguments, axes = [query, key, value], [[0, 2]] * 3
    found = run_attention(causal_attention, arguments, 3, upstream, mode, open_axes=axes)
    late = (np.arange(140) >= 130)[:, None].astype("float32")
    changed = [array * (1.0 + late) for array in arguments]
    again = run_attention(causal_attention, changed, 3, upstream, mode, open_axes=axes)
    for before, after in zip(found[1:], again[1:]):
        np.testing.assert_allclose(before[:, :, :130], after[:, :, :130], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found[0][:, :130], again[0][:, :130], rtol=0, atol=1e-6)
    for gradient in found[1:]:
        assert np.all(gradient[:, :, 130:] == 0.0)


# The block's elementwise layers


DTYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 4e-2), ("float16", 4e-3)]
)


@DTYPES
def test_gelu_with_its_dense_layer(dtype, tolerance, mode, value_and_gradients):
    random = np.random.default_rng(0)
    x = np.concatenate([np.linspace(-12.0, 12.0, 117), [0.0, -40.0, 40.0]]).reshape(4, 6, 5)
    arrays = [x, random.normal(0.0, 1.0, (5, 7)), random.normal(0.0, 1.0, 7)]
    arguments = [keras.ops.cast(array, dtype) for array in arrays]
    upstream = keras.ops.cast(random.normal(0.0, 1.0, (4, 6, 7)), dtype)
    found = value_and_gradients(
        gelu_dense, arguments, 3, upstream, mode, open_axes=[[0, 1], [], []]
    )

    x, kernel, bias = doubles = [in_double(array) for array in arguments]
    expected = torch.nn.functional.gelu(x, approximate="tanh") @ kernel + bias
    expected.backward(in_double(upstream))
    gradients = [array.grad.numpy() for array in doubles]
    assert_close(found, [expected.detach().numpy(), *gradients], tolerance)


def test_gelu_and_its_derivative_where_they_are_small(mode, value_and_gradients):
    """Both vanish for very negative inputs; at 0 the derivative is 1/2."""
    x = np.array([-1e4, -1e3, -100.0, -20.0, 0.0, 20.0, 1e3, 1e4], "float32")[:, None]
    arguments = [x, np.ones((1, 1), "float32"), np.zeros(1, "float32")]
    value, gradient, *_ = value_and_gradients(
        gelu_dense, arguments, 3, np.ones_like(x), mode, open_axes=[[0], [], []]
    )
    np.testing.assert_allclose(value, np.where(x > 0, x, 0.0), atol=1e-6)
    np.testing.assert_allclose(gradient[:, 0], [0, 0, 0, 0, 0.5, 1, 1, 1], atol=1e-6)


@pytest.mark.parametrize("offset", [0.0, 30.0])
@DTYPES
def test_layer_norm(dtype, tolerance, offset, mode, value_and_gradients):
    random = np.random.default_rng(0)
    shapes = [(4, 6, 16), (16,), (16,), (4, 6, 16)]
    *arrays, upstream = [random.normal(0.0, 1.0, shape) for shape in shapes]
    arrays[0] += offset
    *arguments, upstream = [keras.ops.cast(array, dtype) for array in (*arrays, upstream)]

    def normalize(*arguments):
        return layer_norm(*arguments, 1e-5)

    found = value_and_gradients(normalize, arguments, 3, upstream, mode, open_axes=[[0, 1], [], []])
    doubles = [in_double(array) for array in arguments]
    expected = torch.nn.functional.layer_norm(doubles[0], (16,), *doubles[1:], eps=1e-5)
    expected.backward(in_double(upstream))
    gradients = [array.grad.numpy() for array in doubles]
    assert_close(found, [expected.detach().numpy(), *gradients], tolerance * (1 + offset))


def test_layer_norm_of_rows_that_are_all_the_same(mode, value_and_gradients):
    x, gamma = np.full((3, 8), 2.5, "float32"), np.ones(8, "float32")
    arguments = [x, gamma, 0.5 * gamma]
    found = value_and_gradients(
        lambda *arguments: layer_norm(*arguments, 1e-5),
        arguments,
        3,
        np.ones_like(x),
        mode,
        open_axes=[[0], [], []],
    )
    np.testing.assert_allclose(found[0], 0.5)
    assert all(np.isfinite(array).all() for array in found)


# The chunked cross-entropy


def loss_problem(rows=23, dtype="float32", seed=0):
    """States, table, targets and weights, some of which are zero."""
    random = np.random.default_rng(seed)
    states = random.normal(0.0, 1.0, (rows, WIDTH))
    table = random.normal(0.0, 1.0, (VOCABULARY, WIDTH))
    targets = random.integers(0, VOCABULARY, rows).astype("int32")
    weights = (random.uniform(0.5, 2.0, rows) * (np.arange(rows) % 4 != 1)).astype("float32")
    states, table = (keras.ops.cast(array, dtype) for array in (states, table))
    return states, table, targets, weights


def loss_by_torch(states, table, targets, weights, upstream=1.0):
    """The loss and its gradients in float64, by torch."""
    states, table = in_double(states), in_double(table)
    losses = torch.nn.functional.cross_entropy(
        states @ table.T, torch.tensor(targets).long(), reduction="none"
    )
    loss = (losses * torch.tensor(weights)).sum()
    (upstream * loss).backward()
    return [loss.detach().numpy(), states.grad.numpy(), table.grad.numpy()]


# Losses and their gradients may be small.
assert_losses_close = functools.partial(assert_close, least=1e-30)


def in_training(*arguments, **keywords):
    return linear_cross_entropy(*arguments, training=True, **keywords)


@pytest.fixture
def run_loss(value_and_gradients):
    """The loss, and its gradients by the first arguments."""
    return functools.partial(value_and_gradients, open_axes=[[0], [], [0], [0]])


@pytest.fixture
def in_chunks(monkeypatch):
    """Sets how many chunks a number of rows falls into."""

    def set_chunks(rows, chunks):
        monkeypatch.setattr(module, "MAX_LOGITS", -(-rows // chunks) * VOCABULARY)

    return set_chunks


@pytest.mark.parametrize("chunks", [1, 2, 5])  # of which 23 rows fill the last one only in part
def test_loss_and_gradients(chunks, mode, in_chunks, run_loss):
    in_chunks(23, chunks)
    arguments = loss_problem()
    found = run_loss(in_training, arguments, 2, mode=mode)
    assert_losses_close(found, loss_by_torch(*arguments))


def test_the_last_rows_of_the_table_take_no_part(mode, in_chunks, run_loss):
    """As if the table ended before them; they get no gradient."""
    in_chunks(23, 2)
    states, table, targets, weights = loss_problem()
    arguments = (states, table, targets % 30, weights)
    expected = loss_by_torch(states, table[:30], targets % 30, weights)
    without = functools.partial(in_training, num_untrained_tokens=VOCABULARY - 30)
    loss, states_gradient, table_gradient = run_loss(without, arguments, 2, mode=mode)
    assert_losses_close([loss, states_gradient, table_gradient[:30]], expected)
    assert np.all(table_gradient[30:] == 0.0)


@pytest.mark.parametrize("chunks", [1, 5])
def test_inference_gives_the_same_loss(chunks, mode, in_chunks, run_loss):
    in_chunks(23, chunks)
    arguments = loss_problem()
    found = run_loss(linear_cross_entropy, arguments, 0, mode=mode)
    assert_losses_close(found, loss_by_torch(*arguments)[:1])
    trained = run_loss(in_training, arguments, 2, mode=mode)
    assert found[0] == pytest.approx(trained[0], rel=1e-6)


def test_the_number_of_chunks_does_not_matter_where_it_is_open(in_chunks, run_loss):
    """One graph for any number of rows. JAX compiles for each."""
    in_chunks(10, 1)
    mode = "open" if IS_TENSORFLOW else "xla"
    for rows in (1, 9, 10, 11, 30, 31) if IS_TENSORFLOW else (1, 10, 31):
        arguments = loss_problem(rows, seed=rows)
        assert_losses_close(
            run_loss(in_training, arguments, 2, mode=mode), loss_by_torch(*arguments)
        )


def test_a_row_is_more_than_may_be_in_memory(mode, monkeypatch, run_loss):
    monkeypatch.setattr(module, "MAX_LOGITS", VOCABULARY - 1)
    arguments = loss_problem(rows=3)
    assert_losses_close(run_loss(in_training, arguments, 2, mode=mode), loss_by_torch(*arguments))


@pytest.mark.parametrize("training", [True, False])
def test_no_rows_cost_nothing(training, mode, run_loss):
    def function(*arguments):
        return linear_cross_entropy(*arguments, training=training)

    count = 2 if training else 0
    found = run_loss(function, loss_problem(rows=0), count, mode=mode)
    assert found[0] == 0.0
    assert all(np.all(gradient == 0.0) for gradient in found[1:])


@pytest.mark.parametrize("rows", [1, 7])
def test_weights_of_zero_cost_nothing(rows, mode, in_chunks, run_loss):
    in_chunks(7, 2)
    states, table, targets, weights = loss_problem(rows)
    arguments = (states, table, targets, np.zeros_like(weights))
    for array in run_loss(in_training, arguments, 2, mode=mode):
        assert np.all(array == 0.0)


def test_rows_of_weight_zero_get_no_gradient(mode, in_chunks, run_loss):
    in_chunks(23, 5)
    arguments = loss_problem()
    _, gradient, _ = run_loss(in_training, arguments, 2, mode=mode)
    assert np.array_equal(np.any(gradient, axis=1), arguments[-1] > 0)


def test_an_upstream_gradient_of_the_loss(mode, in_chunks, run_loss):
    in_chunks(23, 2)
    arguments = loss_problem()

    def cubed(*arguments):
        return in_training(*arguments) ** 3

    loss = loss_by_torch(*arguments)[0]
    found = run_loss(cubed, arguments, 2, mode=mode)
    expected = loss_by_torch(*arguments, upstream=3 * loss**2)
    assert_losses_close(found[1:], expected[1:])


def test_logits_far_from_zero(run_loss):
    states, table, targets, weights = loss_problem()
    arguments = (states * 100.0, table, targets, weights)
    assert_losses_close(run_loss(in_training, arguments, 2), loss_by_torch(*arguments))


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 3e-2), ("float16", 4e-3)])
@pytest.mark.parametrize("chunks", [1, 5])
def test_the_loss_in_half_precision(chunks, dtype, tolerance, mode, in_chunks, run_loss):
    in_chunks(23, chunks)
    arguments = loss_problem(dtype=dtype)
    found = run_loss(in_training, arguments, 2, mode=mode)
    assert_losses_close(found, loss_by_torch(*arguments), tolerance)


def test_float16_keeps_the_gradients_of_a_mean(mode, in_chunks, run_loss):
    """A share of 1e-6 of a loss lies below what float16 holds, until the loss is scaled."""
    in_chunks(200, 5)
    states, table, targets, weights = loss_problem(200, "float16")
    arguments = (states, table, targets, weights * np.float32(1e-6))
    found = run_loss(in_training, arguments, 2, np.float32(2.0**15), mode)
    expected = loss_by_torch(*arguments, upstream=2.0**15)
    assert 0 < np.abs(found[1][0]).min()
    assert_losses_close(found, expected, 1e-2)


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
    arguments = [tf.convert_to_tensor(array) for array in loss_problem(rows)]

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

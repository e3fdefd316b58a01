"""Causal attention against torch's autograd in float64: values and gradients.

`test_on_jax.py` runs all of it on the JAX backend too.
"""

import functools

import keras
import numpy as np
import pytest
import torch

from gpt1_keras.models.custom_gradients.causal_attention import causal_attention
from tests.helpers.gradients import assert_close, in_double

IS_TENSORFLOW = keras.backend.backend() == "tensorflow"
KEEP = 0.7


@pytest.fixture
def run(value_and_gradients):
    """An operation's value, and its gradients by the first arguments."""
    return functools.partial(value_and_gradients, open_axes=[[0, 2]] * 3 + [[0, 2, 3]])


def attend(query, key, value, keep):
    """Attention with dropout that keeps what `keep` `[batch, heads, length, length]` says."""

    def sample_kept(shape):
        queries, keys = shape[2:]
        return keep[:, :, keys - queries : keys, :keys]

    return causal_attention(query, key, value, sample_kept, KEEP)


def problem(length, dtype="float32"):
    """Query, key, value, a dropout mask, and the upstream gradient."""
    random = np.random.default_rng(length)
    shapes = [(2, 3, length, 4)] * 3 + [(2, length, 3, 4)]
    arrays = [random.normal(0.0, 1.0, shape) for shape in shapes]
    query, key, value, upstream = (keras.ops.cast(array, dtype) for array in arrays)
    keep = random.uniform(size=(2, 3, length, length)) < KEEP
    return [query, key, value, keep], upstream


def reference(query, key, value, keep, upstream, hidden=None):
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


def test_branches_after_a_shared_prefix(mode, run):
    """A prefix of 50 tokens and two branches of 100 that do not see each other."""
    (query, key, value, _), upstream = problem(250)
    branches = np.repeat([0, 1, 2], [50, 100, 100])[None].repeat(2, axis=0)
    hidden = (branches[:, None] != 0) & (branches[:, :, None] != branches[:, None])

    def attend(query, key, value):
        return causal_attention(query, key, value, branches=keras.ops.convert_to_tensor(branches))

    found = run(attend, [query, key, value], 3, upstream, mode, open_axes=[[0, 2]] * 3)
    assert_close(found, reference(query, key, value, None, upstream, hidden))


@pytest.mark.parametrize("length", [1, 5, 128, 129, 300])
@pytest.mark.parametrize("dropout", [False, True])
def test_attention(dropout, length, mode, run):
    (query, key, value, keep), upstream = problem(length)
    if dropout:
        found = run(attend, [query, key, value, keep], 3, upstream, mode)
    else:
        arguments, axes = [query, key, value], [[0, 2]] * 3
        found = run(causal_attention, arguments, 3, upstream, mode, open_axes=axes)
        keep = None
    if length > 1:
        assert min(np.abs(array).max() for array in found) > 0.1
    assert_close(found, reference(query, key, value, keep, upstream))


@pytest.mark.skipif(not IS_TENSORFLOW, reason="JAX compiles for one length")
@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_an_open_batch_of_known_length(mode, run):
    (query, key, value, keep), upstream = problem(130)
    arguments = [query, key, value, keep]
    found = run(attend, arguments, 3, upstream, "open", open_axes=[[0]] * 4)
    assert_close(found, reference(query, key, value, keep, upstream))


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 3e-2), ("float16", 4e-3)])
def test_attention_in_half_precision(dtype, tolerance, mode, run):
    (query, key, value, keep), upstream = problem(140, dtype)
    found = run(attend, [query, key, value, keep], 3, upstream, mode)
    assert_close(found, reference(query, key, value, keep, upstream), tolerance)


def test_scores_far_from_zero(mode, run):
    (query, key, value, keep), upstream = problem(140)
    arguments = [query * 30.0, key * 30.0, value, keep]
    found = run(attend, arguments, 3, upstream, mode)
    expected = reference(*arguments, upstream)
    assert_close(found, expected, 1e-3)  # scores of some 1,000 have 4 digits after the point


def test_later_positions_change_nothing_before_them(mode, run):
    """Nor do they get a gradient from there."""
    (query, key, value, _), upstream = problem(140)
    upstream = upstream * (np.arange(140) < 130)[:, None, None].astype("float32")
    arguments, axes = [query, key, value], [[0, 2]] * 3
    found = run(causal_attention, arguments, 3, upstream, mode, open_axes=axes)
    late = (np.arange(140) >= 130)[:, None].astype("float32")
    changed = [array * (1.0 + late) for array in arguments]
    again = run(causal_attention, changed, 3, upstream, mode, open_axes=axes)
    for before, after in zip(found[1:], again[1:]):
        np.testing.assert_allclose(before[:, :, :130], after[:, :, :130], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found[0][:, :130], again[0][:, :130], rtol=0, atol=1e-6)
    for gradient in found[1:]:
        assert np.all(gradient[:, :, 130:] == 0.0)

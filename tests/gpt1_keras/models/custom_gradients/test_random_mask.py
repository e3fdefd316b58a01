"""Dropout's booleans: the right share, independent, and the same for the same seed."""

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from gpt1_keras.models.custom_gradients.graph_execution import random_mask
from gpt1_keras.models.layers import Dropout


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

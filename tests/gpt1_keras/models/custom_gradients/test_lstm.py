"""Our LSTM against torch's in float64: values and gradients.

`test_on_jax.py` runs all of it on the JAX backend too.
"""

import keras
import numpy as np
import pytest
import torch

from gpt1_keras.models.custom_gradients.lstm import LSTM, lstm

BATCH, WIDTH, UNITS = 3, 6, 5


def problem(length, dtype="float32"):
    """Inputs, kernels and bias, and the upstream gradient."""
    random = np.random.default_rng(length)
    shapes = [(BATCH, length, WIDTH), (WIDTH, 4 * UNITS), (UNITS, 4 * UNITS), (4 * UNITS,)]
    *arguments, upstream = (
        keras.ops.cast(random.normal(size=shape), dtype)
        for shape in [*shapes, (BATCH, length, UNITS)]
    )
    return arguments, upstream


def reference(arguments, upstream):
    """torch's LSTM, whose gates come in the same order."""
    x, kernel, recurrent_kernel, bias, upstream = (
        torch.tensor(np.array(keras.ops.cast(array, "float32"), np.float64))
        for array in (*arguments, upstream)
    )
    layer = torch.nn.LSTM(WIDTH, UNITS, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(kernel.T)
        layer.weight_hh_l0.copy_(recurrent_kernel.T)
        layer.bias_ih_l0.copy_(bias)
        layer.bias_hh_l0.zero_()
    states, _ = layer(x.requires_grad_())
    states.backward(upstream)
    kernels = layer.weight_ih_l0.grad.T, layer.weight_hh_l0.grad.T, layer.bias_ih_l0.grad
    return [array.numpy() for array in (states.detach(), x.grad, *kernels)]


def assert_close(found, expected, tolerance):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())


@pytest.mark.parametrize("length", [1, 2, 40])
def test_values_and_gradients(length, mode, value_and_gradients):
    arguments, upstream = problem(length)
    axes = [[0, 1], [], [], []]
    found = value_and_gradients(lstm, arguments, 4, upstream, mode, axes)
    assert_close(found, reference(arguments, upstream), 1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 6e-2), ("float16", 8e-3)])
def test_half_precision(dtype, tolerance, mode, value_and_gradients):
    arguments, upstream = problem(20, dtype)
    axes = [[0, 1], [], [], []]
    found = value_and_gradients(lstm, arguments, 4, upstream, mode, axes)
    assert_close(found, reference(arguments, upstream), tolerance)


def test_training_and_inference_are_one_layer():
    """Our training and Keras's inference read the same weights."""
    layer = LSTM(UNITS, bias_initializer="normal")
    x = np.random.default_rng(0).normal(size=(2, 9, WIDTH)).astype("float32")
    np.testing.assert_allclose(layer(x, training=True), layer(x), atol=1e-6)
    same = LSTM.from_config(layer.get_config())
    same.build(x.shape)
    same.set_weights(layer.get_weights())
    np.testing.assert_array_equal(same(x), layer(x))

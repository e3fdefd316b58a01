"""GELU with its dense layer against torch's autograd in float64: values and gradients.

`test_on_jax.py` runs all of it on the JAX backend too.
"""

import keras
import numpy as np
import pytest
import torch

from gpt1_keras.models.custom_gradients.elementwise import gelu_dense
from tests.helpers.gradients import assert_close, in_double


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 4e-2), ("float16", 4e-3)]
)
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

"""Layer normalisation against torch's autograd in float64: values and gradients.

`test_on_jax.py` runs all of it on the JAX backend too.
"""

import keras
import numpy as np
import pytest
import torch

from gpt1_keras.models.custom_gradients.elementwise import layer_norm
from tests.helpers.gradients import assert_close, in_double


@pytest.mark.parametrize("offset", [0.0, 30.0])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 4e-2), ("float16", 4e-3)]
)
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

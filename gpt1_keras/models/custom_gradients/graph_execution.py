"""When and how TensorFlow runs what is computed: in order, in one loop, and random masks."""

import contextlib
import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.types import Tensor

LEAST_ELEMENTS = 2**18  # for fewer, compiling takes longer than it saves
_VALUES = 2**16


def after(tensor: Tensor) -> AbstractContextManager[None]:
    """Returns a context whose operations run after the tensor is computed."""
    if keras.backend.backend() == "tensorflow":
        return tf.control_dependencies([tensor])
    return contextlib.nullcontext()


def zero_after(tensor: Tensor) -> Tensor:
    """Returns a zero that depends on the float tensor and cannot be folded into a constant.

    It is 1 if the first element is NaN; the results are lost then anyway.
    """
    first = ops.reshape(tensor, (-1,))[0]
    return ops.cast(ops.isnan(first), tensor.dtype)


def fused(function: Callable) -> Callable:
    """Returns the function, which XLA compiles for large tensors of known shape.

    Args:
        function: takes tensors and constants; the first is the largest. Define it at module level,
            so that all layers share what is compiled. Use it only where gradients are written by
            hand, as no gradient passes through it.
    """

    @functools.cache
    def compiled() -> Callable:
        return tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def run(first: Any, *others: Any) -> Any:
        is_large = (
            keras.backend.backend() == "tensorflow"
            and tf.inside_function()
            and (first.shape.num_elements() or 0) >= LEAST_ELEMENTS
        )
        if not is_large:
            return function(first, *others)
        # `stop_gradient`, so that the call keeps nothing for a gradient.
        values = (tf.stop_gradient(x) if tf.is_tensor(x) else x for x in (first, *others))
        return compiled()(*values)

    return run


def random_mask(
    shape: tuple[int | Tensor, ...],
    probability: float,
    seed_generator: keras.random.SeedGenerator,
) -> Tensor:
    """Samples booleans, of a shape of ints or int scalars, that are true with a probability.

    On TensorFlow, the probability is rounded to a multiple of 2^-16, and each random number of 64
    bits yields four booleans. A uniform float for each boolean, as in Keras's dropout, takes twice
    as long in a graph and 70 times as long in XLA on a CPU.
    """
    if keras.backend.backend() != "tensorflow":
        return keras.random.uniform(shape, seed=seed_generator) < probability
    size = math.prod(shape)
    words = tf.random.stateless_uniform(
        [-(-size // 4)], seed_generator.next(), minval=None, maxval=None, dtype="uint64"
    )
    numbers = ops.reshape(tf.bitcast(words, "uint16"), (-1,))[:size]
    last = min(round(probability * _VALUES), _VALUES) - 1
    return ops.reshape(numbers <= tf.constant(last, "uint16"), shape)

"""Chains of elementwise operations in one pass over the memory, in TensorFlow's graph too.

Each operation of a graph reads and writes whole tensors. Here XLA compiles a chain of them into one
loop, while matrix products stay with the graph's kernels, which are faster at them on a CPU.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras

from gpt1_keras.lazy import tensorflow as tf

LEAST_ELEMENTS = 2**18  # for fewer, compiling takes longer than it saves


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

"""How TensorFlow runs computations: in order, in one loop, with gradients written by hand."""

import contextlib
import functools
import math
import weakref
from collections.abc import Callable, Iterator
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


def custom_gradient(function: Callable) -> Callable:
    """Returns `keras.ops.custom_gradient(function)`, whose gradients go with their graphs."""
    with_gradient = ops.custom_gradient(function)
    if keras.backend.backend() != "tensorflow":
        return with_gradient

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with gradients_held_by_graph():
            return with_gradient(*args)

    return call


@contextlib.contextmanager
def gradients_held_by_graph() -> Iterator[None]:
    """Lets the current graph hold the custom gradients that TensorFlow registers in the block.

    TensorFlow registers the gradient of each call that it traces, and never drops one. A gradient
    refers to the graph that it was traced in, so the graphs of each model that was trained would
    stay in memory until the process ends.
    """
    if tf.executing_eagerly():
        yield
        return
    from tensorflow.python.framework import ops as framework_ops

    registry, graph = framework_ops.gradient_registry._registry, tf.compat.v1.get_default_graph()
    before = set(registry)
    yield
    for name in registry.keys() - before:
        gradient = registry[name]["type"]
        if isinstance(gradient, weakref.ProxyTypes):  # another replica's thread has been here
            continue
        graph.held_gradients = [*getattr(graph, "held_gradients", ()), gradient]
        registry[name]["type"] = weakref.proxy(gradient)
        weakref.finalize(graph, registry.pop, name, None)

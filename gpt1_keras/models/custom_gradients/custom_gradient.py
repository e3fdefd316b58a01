"""Custom gradients that go with the graph that they were traced in."""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from gpt1_keras.lazy import tensorflow as tf


def custom_gradient(function: Callable) -> Callable:
    """Returns `keras.ops.custom_gradient(function)`; its gradients go with their graphs."""
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

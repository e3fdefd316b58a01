"""Frees memory between the runs of one process."""

import contextlib
from collections.abc import Iterator

import keras
from tensorflow.python.framework import ops


@contextlib.contextmanager
def memory_freed() -> Iterator[None]:
    """Frees the memory of the models that are built and trained in the block, when it ends.

    TensorFlow registers each custom gradient that it traces, and never drops one. A gradient refers
    to the graph that it was traced in, so a trained model's graphs would stay until the process
    ends.
    A model that is still in use after the block can predict, but no longer compute gradients.
    """
    registry = ops.gradient_registry._registry  # private in TensorFlow 2.21
    before = set(registry)
    try:
        yield
    finally:
        keras.utils.clear_session(free_memory=True)
        for name in registry.keys() - before:
            if "-" in name:  # such as CustomGradient-123; others are of ops, registered late
                del registry[name]

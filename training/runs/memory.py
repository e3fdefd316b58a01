"""What several runs in one process need so that memory does not grow with their number."""

import contextlib
from collections.abc import Iterator

import keras
from tensorflow.python.framework import ops


@contextlib.contextmanager
def memory_freed() -> Iterator[None]:
    """Frees the memory of the models that are built and trained in the block, when it ends.

    TensorFlow registers each custom gradient that it traces, and never drops it; it refers to the
    graph that it was traced in, so a trained model's graphs would stay for as long as the process.
    A model that is still in use after the block can predict, but no longer compute gradients.
    """
    registry = ops.gradient_registry._registry  # private in TensorFlow 2.21
    before = set(registry)
    try:
        yield
    finally:
        keras.utils.clear_session(free_memory=True)
        for name in registry.keys() - before:
            if "-" in name:  # a traced one's, CustomGradient-123; an op's may be registered late
                del registry[name]

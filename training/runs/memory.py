"""Frees memory between the runs of one process."""

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def memory_freed() -> Iterator[None]:
    """Frees the memory of the models that are built and trained in the block, when it ends."""
    try:
        yield
    finally:
        keras.utils.clear_session(free_memory=True)

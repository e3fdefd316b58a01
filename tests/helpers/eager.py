"""Short training without tracing, for tests of what comes after it."""

import contextlib

import tensorflow as tf


@contextlib.contextmanager
def eagerly():
    """Runs `fit` and `predict` eagerly: on a few texts, tracing takes longer than running."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)

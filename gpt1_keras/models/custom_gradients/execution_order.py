"""When TensorFlow computes what: as late as it can be, so that it does not lie in memory till then.

XLA decides for itself, so that these change nothing on JAX.
"""

import contextlib

import keras
from keras import ops

from gpt1_keras.lazy import tensorflow as tf


def after(tensor):
    """A context in which all that is made is computed after the tensor."""
    if keras.backend.backend() == "tensorflow":
        return tf.control_dependencies([tensor])
    return contextlib.nullcontext()


def zero_after(tensor):
    """A zero that cannot be known before the float tensor, nor folded into a constant.

    Returns:
        scalar of the tensor's dtype; 1 if the tensor starts with NaN, and all is lost anyway.
    """
    first = ops.reshape(tensor, (-1,))[0]
    return ops.cast(ops.isnan(first), tensor.dtype)

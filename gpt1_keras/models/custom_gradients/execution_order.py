"""Makes TensorFlow compute tensors late, so that they do not occupy memory until they are needed.

Other backends do not need this: XLA schedules by itself, and torch runs in the order of the code.
"""

import contextlib
from contextlib import AbstractContextManager

import keras
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.types import Tensor


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

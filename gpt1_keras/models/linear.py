"""The product of a dense layer, in the form that TensorFlow's graph optimizer fuses.

Where oneDNN is on, TensorFlow computes a matrix product with its bias, and GELU or the residual
after it, in one op. For that, `BiasAdd` must follow the product directly, no name scope may open
between `BiasAdd` and GELU (`Layer.__call__` opens one), and the residual and the product must be
known to have the same shape.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeAlias

import keras
from keras import ops

from gpt1_keras.types import Tensor

# A function of a dense layer and its input, float `[..., in]`.
Observer: TypeAlias = Callable[[keras.layers.Dense, Tensor], None]

_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


def linear(layer: keras.layers.Dense, x: Tensor) -> Tensor:
    """Returns x kernel + bias, as the layer does: `[..., in]` to `[..., out]`, in its dtype.

    The layer has no activation; `layer.kernel` includes LoRA's part.
    """
    if observe := _observer.get():
        observe(layer, x)
    if layer.quantization_mode:
        return layer(x)
    x, kernel, bias = (
        ops.cast(each, layer.compute_dtype) for each in (x, layer.kernel, layer.bias)
    )
    # A function that is not inlined does not know the shapes of the variables that it reads.
    kernel = ops.reshape(kernel, kernel.shape)
    return ops.add(ops.matmul(x, kernel), bias)


@contextlib.contextmanager
def observed_inputs(observer: Observer) -> Iterator[None]:
    """Calls a function for each layer that `linear` computes, with the layer and its input."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)

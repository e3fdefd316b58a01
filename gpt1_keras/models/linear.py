"""The product of a dense layer, in the form that TensorFlow's graph optimizer fuses.

Where oneDNN is on, a product of rows takes along its bias, and GELU or the residual after it. For
that, the product must feed `BiasAdd` directly, and no name scope may open between `BiasAdd` and
GELU, as `Layer.__call__` opens one.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeAlias

import keras
from keras import ops

from gpt1_keras.types import Tensor

# Takes a dense layer and its input, float `[..., in]`.
Observer: TypeAlias = Callable[[keras.layers.Dense, Tensor], None]

_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


def linear(layer: keras.layers.Dense, x: Tensor) -> Tensor:
    """Returns x kernel + bias, as the layer does; LoRA's part is in the kernel.

    Args:
        layer: without an activation.
        x: float `[..., in]`.

    Returns:
        float `[..., out]`, in the layer's dtype.
    """
    if observe := _observer.get():
        observe(layer, x)
    if layer.quantization_mode:
        return layer(x)
    x, kernel, bias = (
        ops.cast(each, layer.compute_dtype) for each in (x, layer.kernel, layer.bias)
    )
    return ops.add(ops.matmul(x, kernel), bias)


@contextlib.contextmanager
def observed_inputs(observer: Observer) -> Iterator[None]:
    """Calls a function with each layer that `linear` computes, and with its input."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)

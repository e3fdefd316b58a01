"""GELU followed by a dense layer, with a gradient that keeps only the input."""

from typing import Any

from keras import ops

from gpt1_keras.models.custom_gradients.custom_gradient import custom_gradient
from gpt1_keras.models.custom_gradients.execution_order import zero_after
from gpt1_keras.models.custom_gradients.fused import fused
from gpt1_keras.types import Tensor

_LINEAR = 1.5957691216057308  # 2 sqrt(2 / pi)
_CUBIC = 0.0713548162726009  # 0.044715 times it


def gelu_dense(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Returns GELU(x) kernel + bias, with GELU in its tanh form: `[..., in]` to `[..., out]`.

    0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) is x sigmoid(y) with y = 2 sqrt(2 / pi) (x +
    0.044715 x^3).
    """

    @custom_gradient
    def apply(x: Tensor, kernel: Tensor, bias: Tensor) -> tuple[Tensor, Any]:
        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, ...]:
            upstream = args[0] if upstream is None else upstream
            of_gelu = ops.matmul(upstream, ops.transpose(kernel))
            of_x, activated = _gelu_gradient(x, of_gelu)
            rows = ops.reshape(upstream, (-1, kernel.shape[1]))
            activated = ops.reshape(activated, (-1, kernel.shape[0]))
            return of_x, ops.matmul(ops.transpose(activated), rows), ops.sum(rows, axis=0)

        return ops.matmul(_gelu(x), kernel) + bias, gradient

    return apply(x, kernel, bias)


def _gate(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns `(sigmoid(y), y)`."""
    y = x * (_LINEAR + _CUBIC * ops.square(x))
    return ops.sigmoid(y), y


@fused
def _gelu(x: Tensor) -> Tensor:
    return x * _gate(x)[0]


@fused
def _gelu_gradient(x: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """Returns `(gradient of x, GELU(x))`."""
    x = x + zero_after(upstream)
    gate, y = _gate(x)
    # gate + x gate', where x y' = 3 y - 2 x _LINEAR.
    gelu_gradient = gate * (1.0 + (1.0 - gate) * (3.0 * y - (2.0 * _LINEAR) * x))
    return upstream * gelu_gradient, x * gate

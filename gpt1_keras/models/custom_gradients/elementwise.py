"""GELU of a linear layer, and layer normalisation, whose gradients keep little."""

from typing import Any

from keras import ops

from gpt1_keras.models.custom_gradients.custom_gradient import custom_gradient
from gpt1_keras.models.custom_gradients.graph_execution import fused, zero_after
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


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Returns gamma (x - mean) / sqrt(variance + epsilon) + beta, over the last axis, in float32.

    The result has the shape, `[..., width]`, and the dtype of x; gamma and beta are `[width]`.
    """

    @custom_gradient
    def normalize(x: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Any]:
        output, normal, scale = _fused_normalize(x, gamma, beta, epsilon)

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, ...]:
            upstream = args[0] if upstream is None else upstream
            return _gradients(upstream, normal, scale, gamma, beta)

        return output, gradient

    return normalize(x, gamma, beta)


def layer_norm_in_inference(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Returns the same as `layer_norm`, by stock operations.

    The forms that TensorFlow's graph optimizer fuses are no better: one gets another epsilon; the
    other does not run on GPUs, takes 8 times as long where oneDNN is off, and 4 times as long for
    one short text where it is on.
    """
    return _normalize(x, gamma, beta, epsilon)[0]


def _normalize(
    x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns `(output, x with mean 0 and variance 1, the factor that scaled it)`."""
    centred = ops.cast(x, "float32")
    centred -= _mean(centred)
    scale = ops.rsqrt(_mean(ops.square(centred)) + epsilon)
    normal = centred * scale
    output = normal * ops.cast(gamma, "float32") + ops.cast(beta, "float32")
    return ops.cast(output, x.dtype), normal, scale


_fused_normalize = fused(_normalize)


@fused
def _gradients(
    upstream: Tensor, normal: Tensor, scale: Tensor, gamma: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of x, gamma and beta."""
    dtype, width = upstream.dtype, upstream.shape[-1]
    wide_gamma, upstream = ops.cast(gamma, "float32"), ops.cast(upstream, "float32")
    product = upstream * normal
    # Means over a row, weighted by gamma, as products with a vector.
    mean_gradient = ops.matmul(upstream, wide_gamma[:, None] / width)
    mean_product = ops.matmul(product, wide_gamma[:, None] / width)
    x_gradient = (upstream * wide_gamma - mean_gradient - normal * mean_product) * scale
    all_but_last = tuple(range(len(upstream.shape) - 1))
    return (
        ops.cast(x_gradient, dtype),
        ops.cast(ops.sum(product, axis=all_but_last), gamma.dtype),
        ops.cast(ops.sum(upstream, axis=all_but_last), beta.dtype),
    )


def _mean(x: Tensor) -> Tensor:
    return ops.mean(x, axis=-1, keepdims=True)

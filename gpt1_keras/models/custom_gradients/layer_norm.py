"""Layer normalisation, with a gradient that passes over the memory few times."""

from typing import Any

from keras import ops

from gpt1_keras.models.custom_gradients.custom_gradient import custom_gradient
from gpt1_keras.models.custom_gradients.fused import fused
from gpt1_keras.types import Tensor


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

"""Layer normalisation, with a gradient of few passes over the memory."""

from typing import Any

from keras import ops

from gpt1_keras.types import Tensor


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Returns gamma (x - mean) / sqrt(variance + epsilon) + beta, over the last axis, in float32.

    Args:
        x: float `[..., width]`.
        gamma: float `[width]`.
        beta: float `[width]`.
        epsilon: added to the variance.

    Returns:
        float, of the shape and dtype of x.
    """
    width = x.shape[-1]
    all_but_last = tuple(range(len(x.shape) - 1))

    def mean(x: Tensor) -> Tensor:
        return ops.mean(x, axis=-1, keepdims=True)

    @ops.custom_gradient
    def normalize(x: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Any]:
        centred = ops.cast(x, "float32")
        centred -= mean(centred)
        scale = ops.rsqrt(mean(ops.square(centred)) + epsilon)
        normal = centred * scale
        wide_gamma = ops.cast(gamma, "float32")

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, ...]:
            upstream = ops.cast(args[0] if upstream is None else upstream, "float32")
            product = upstream * normal
            # Means over a row, weighted by gamma, as products with a vector.
            mean_gradient = ops.matmul(upstream, wide_gamma[:, None] / width)
            mean_product = ops.matmul(product, wide_gamma[:, None] / width)
            x_gradient = (upstream * wide_gamma - mean_gradient - normal * mean_product) * scale
            return (
                ops.cast(x_gradient, x.dtype),
                ops.cast(ops.sum(product, axis=all_but_last), gamma.dtype),
                ops.cast(ops.sum(upstream, axis=all_but_last), beta.dtype),
            )

        return ops.cast(normal * wide_gamma + ops.cast(beta, "float32"), x.dtype), gradient

    return normalize(x, gamma, beta)

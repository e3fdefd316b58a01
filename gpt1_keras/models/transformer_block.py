"""The Transformer block of GPT-1, cut at attention.

In training, GELU and layer normalisation have gradients written by hand, which keep little. In
inference they are stock operations, so that exports hold no custom gradients.
"""

from typing import Any

import keras
from keras import ops

from gpt1_keras.models.attention import AttentionDropout, BranchAttention, FullAttention
from gpt1_keras.models.graph_execution import custom_gradient, fused, zero_after
from gpt1_keras.models.layers import (
    LAYER_NORM_EPSILON,
    AttentionProjections,
    Dropout,
    dense,
    linear,
)
from gpt1_keras.types import Shape, Tensor

_LINEAR = 1.5957691216057308  # 2 sqrt(2 / pi)
_CUBIC = 0.0713548162726009  # 0.044715 times it


@keras.saving.register_keras_serializable(package="gpt1_keras")
class TransformerBlock(keras.layers.Layer):
    """A post-norm block: n = LN(x + attention(x)); h = LN(n + mlp(n)) (section 3.1).

    It is `project`, attention, and `finish`. Training, generation and exports put their own
    attention between the other two, and call these on sequences or on rows. A variant with other
    projections or another feed-forward layer overrides `project` or `finish`, and works in all
    three. A variant that overrides `call` is used as a whole: it cannot generate with a cache, and
    its export computes padding too.

    Args:
        num_heads: number of attention heads.
        intermediate_dim: width of the feed-forward layer.
        dropout: rate of dropout on the attention's probabilities and on both residual branches.

    Raises:
        ValueError: `num_heads` does not divide the width of the input.
    """

    def __init__(
        self, num_heads: int, intermediate_dim: int, dropout: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout

    def build(self, input_shape: Shape) -> None:
        dtype, hidden_dim = self.dtype_policy, input_shape[-1]
        if hidden_dim % self.num_heads:
            raise ValueError(
                f"num_heads must divide hidden_dim. Received: num_heads={self.num_heads}, "
                f"hidden_dim={hidden_dim}."
            )
        self.attention = AttentionProjections(dtype=dtype, name="attention")
        self.attention_norm = _layer_norm(dtype, "attention_norm")
        self.expand = dense(self.intermediate_dim, dtype, "expand")
        self.contract = dense(hidden_dim, dtype, "contract")
        self.feedforward_norm = _layer_norm(dtype, "feedforward_norm")
        self.residual_dropout = Dropout(self.dropout, dtype=dtype)
        for layer in (self.attention, self.attention_norm, self.expand, self.feedforward_norm):
            layer.build(input_shape)
        self.contract.build((*input_shape[:-1], self.intermediate_dim))
        self.built = True

    def call(
        self,
        x: Tensor,
        attention: FullAttention | BranchAttention | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Applies the block to whole sequences, float `[batch, length, hidden_dim]`.

        Args:
            x: the sequences; the result has their shape.
            attention: by default `FullAttention`.
            training: whether to apply dropout and use custom gradients.
        """
        if attention is None:
            attention = FullAttention.of(x)
        dropout = None
        if training:
            dropout = AttentionDropout(self.dropout, self.attention.seed_generator)
        qkv = self.project(x, attention.positions)
        attended = attention(qkv, self.num_heads, dropout)
        return self.finish(attended, x, training)

    def project(self, x: Tensor, positions: Tensor) -> Tensor:
        """Returns queries, keys and values side by side, as attention takes them.

        Args:
            x: float `[..., hidden_dim]`.
            positions: int that broadcasts to the shape of x without its last axis: the position of
                each token in its sequence. GPT-1 adds positions to its embeddings, and does not
                read these.

        Returns:
            float `[..., 3 * hidden_dim]`.
        """
        return linear(self.attention.qkv, x)

    def finish(self, attended: Tensor, x: Tensor, training: bool | None = None) -> Tensor:
        """Applies the rest of the block: projection, residual, norm, feed-forward, residual, norm.

        `attended` is what attention returned, x the block's input; both, and the result, are float
        `[..., hidden_dim]`. `training` is as in `call`.
        """
        attended = linear(self.attention.output_projection, attended)
        x = self._add(x, attended, training)
        x = normalize(self.attention_norm, x, training)
        transformed = _dense_of_gelu(self.contract, linear(self.expand, x), training)
        x = self._add(x, transformed, training)
        return normalize(self.feedforward_norm, x, training)

    def _add(self, x: Tensor, branch: Tensor, training: bool | None) -> Tensor:
        # Not by `ops.add`, which mistakes [1, hidden_dim] and [0, hidden_dim] for a bias.
        return x + ops.cast(self.residual_dropout(branch, training=training), x.dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
        }


def normalize(
    norm: keras.layers.LayerNormalization, x: Tensor, training: bool | None = None
) -> Tensor:
    """Returns the layer normalisation of x, float `[..., width]`, in the dtype of the layer."""
    function = layer_norm if training else layer_norm_in_inference
    gamma, beta = _values(norm.variable_dtype, norm.gamma, norm.beta)
    return function(ops.cast(x, norm.compute_dtype), gamma, beta, norm.epsilon)


def _layer_norm(dtype: keras.DTypePolicy, name: str) -> keras.layers.LayerNormalization:
    return keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, dtype=dtype, name=name)


def _dense_of_gelu(layer: keras.layers.Dense, x: Tensor, training: bool | None) -> Tensor:
    if training and not layer.quantization_mode:
        return gelu_dense(x, *_values(layer.compute_dtype, layer.kernel, layer.bias))
    return linear(layer, keras.activations.gelu(x, approximate=True))


def _values(dtype: str, *variables: keras.Variable) -> list[Tensor]:
    return [ops.cast(variable, dtype) for variable in variables]


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

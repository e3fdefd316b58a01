"""The Transformer block of GPT-1, cut at attention.

In training, its layers use custom gradients. In inference they use stock operations, so that
exports hold no custom gradients.
"""

from typing import Any

import keras
from keras import ops

from gpt1_keras.models.attention import AttentionDropout, BranchAttention, FullAttention
from gpt1_keras.models.custom_gradients.elementwise import (
    gelu_dense,
    layer_norm,
    layer_norm_in_inference,
)
from gpt1_keras.models.layers import (
    LAYER_NORM_EPSILON,
    AttentionProjections,
    Dropout,
    dense,
    linear,
)
from gpt1_keras.types import Shape, Tensor


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
        transformed = _gelu_dense(self.contract, linear(self.expand, x), training)
        x = self._add(x, transformed, training)
        return normalize(self.feedforward_norm, x, training)

    def _add(self, x: Tensor, branch: Tensor, training: bool | None) -> Tensor:
        """Returns x plus a residual branch, in the dtype of x."""
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
    """Returns a layer normalisation with the paper's epsilon."""
    return keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, dtype=dtype, name=name)


def _gelu_dense(layer: keras.layers.Dense, x: Tensor, training: bool | None) -> Tensor:
    """Returns the dense layer of GELU(x)."""
    if training and not layer.quantization_mode:
        return gelu_dense(x, *_values(layer.compute_dtype, layer.kernel, layer.bias))
    return linear(layer, keras.activations.gelu(x, approximate=True))


def _values(dtype: str, *variables: keras.Variable) -> list[Tensor]:
    """Returns the variables' values in a dtype."""
    return [ops.cast(variable, dtype) for variable in variables]

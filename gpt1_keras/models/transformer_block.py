"""The Transformer block of GPT-1.

In training, its layers use custom gradients. In inference they are stock operations, as a custom
gradient would end up in exports.
"""

from typing import Any

import keras
from keras import ops

from gpt1_keras.models.attention import CausalSelfAttention
from gpt1_keras.models.custom_gradients.gelu_dense import gelu_dense
from gpt1_keras.models.custom_gradients.layer_norm import layer_norm
from gpt1_keras.models.layers import LAYER_NORM_EPSILON, Dropout, dense
from gpt1_keras.types import Shape, Tensor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class TransformerBlock(keras.layers.Layer):
    """A post-norm block: n = LN(x + attention(x)); h = LN(n + mlp(n)) (section 3.1).

    Args:
        num_heads: number of attention heads.
        intermediate_dim: width of the feed-forward layer.
        dropout: rate of dropout on the attention's probabilities and on both residual branches.
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
        self.attention = CausalSelfAttention(
            self.num_heads, self.dropout, dtype=dtype, name="attention"
        )
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
        branches: Tensor | None = None,
        query_indices: Tensor | None = None,
        cache: Tensor | None = None,
        cache_index: int | Tensor = 0,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Applies the block. Arguments and result are those of `CausalSelfAttention`."""
        attended = self.attention(
            x,
            branches=branches,
            query_indices=query_indices,
            cache=cache,
            cache_index=cache_index,
            training=training,
        )
        if cache is not None:
            attended, cache = attended
        if query_indices is not None:
            x = ops.take_along_axis(x, query_indices[:, :, None], axis=1)
        x = x + self.residual_dropout(attended, training=training)
        x = _normalize(self.attention_norm, x, training)
        transformed = _gelu_dense(self.contract, self.expand(x), training)
        x = x + self.residual_dropout(transformed, training=training)
        x = _normalize(self.feedforward_norm, x, training)
        return x if cache is None else (x, cache)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
        }


def _layer_norm(dtype: keras.DTypePolicy, name: str) -> keras.layers.LayerNormalization:
    """Returns a layer normalisation with the paper's epsilon."""
    return keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, dtype=dtype, name=name)


def _normalize(norm: keras.layers.LayerNormalization, x: Tensor, training: bool | None) -> Tensor:
    """Returns the layer normalisation of x."""
    if training:
        gamma, beta = _values(norm.gamma, norm.beta)
        return layer_norm(x, gamma, beta, norm.epsilon)
    return norm(x)


def _gelu_dense(layer: keras.layers.Dense, x: Tensor, training: bool | None) -> Tensor:
    """Returns the dense layer of GELU(x)."""
    if training:
        return gelu_dense(x, *_values(layer.kernel, layer.bias))
    return layer(keras.activations.gelu(x, approximate=True))


def _values(*variables: keras.Variable) -> list[Tensor]:
    """Returns the variables' values, in the dtype that the calling layer computes in."""
    return [ops.copy(variable) for variable in variables]

"""Causal self-attention, with and without a cache of earlier keys and values."""

from typing import Any

import keras
from keras import ops

from gpt1_keras.models.attention_scores import masked_scores, visible_keys
from gpt1_keras.models.custom_gradients.attention import causal_attention
from gpt1_keras.models.custom_gradients.random_mask import random_mask
from gpt1_keras.models.layers import dense
from gpt1_keras.types import Shape, Tensor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class CausalSelfAttention(keras.layers.Layer):
    """Masked multi-head self-attention: softmax(q k^T / sqrt(head_dim)) v.

    Args:
        num_heads: number of heads; must divide the width of the input.
        dropout: rate of dropout on the probabilities.
    """

    def __init__(self, num_heads: int, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout = dropout

    def build(self, input_shape: Shape) -> None:
        hidden_dim = input_shape[-1]
        if hidden_dim % self.num_heads:
            raise ValueError(
                f"num_heads must divide hidden_dim. Received: num_heads={self.num_heads}, "
                f"hidden_dim={hidden_dim}."
            )
        self.head_dim = hidden_dim // self.num_heads
        self.qkv = dense(3 * hidden_dim, self.dtype_policy, "qkv")
        self.output_projection = dense(hidden_dim, self.dtype_policy, "output_projection")
        self.seed_generator = keras.random.SeedGenerator()
        self.qkv.build(input_shape)
        self.output_projection.build(input_shape)
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
        """Attends to the same and all earlier positions.

        Args:
            x: float `[batch, length, hidden_dim]`.
            branches: optional int `[batch, length]`, for branches after a shared prefix; see
                `attention_scores`.
            query_indices: optional int `[batch, queries]`, the only positions to return outputs
                for. In inference only.
            cache: optional float `[batch, 2, num_heads, max_length, head_dim]`, the keys and
                values of earlier positions. In inference only.
            cache_index: int scalar, the position of `x[:, 0]` in the cache.

        Returns:
            float `[batch, length, hidden_dim]`, or `[batch, queries, hidden_dim]`. With a cache,
            `(outputs, updated cache)`.
        """
        batch, length = ops.shape(x)[0], ops.shape(x)[1]
        query, key, value = self._split_heads(self.qkv(x), batch, length)
        if training:
            sample_kept = self._sample_kept if self.dropout else None
            x = causal_attention(query, key, value, sample_kept, 1.0 - self.dropout, branches)
        elif query_indices is not None:
            is_visible = ops.broadcast_to(
                visible_keys(length, length, branches), (batch, 1, length, length)
            )
            rows = query_indices[:, None, :, None]
            query = ops.take_along_axis(query, rows, axis=2)
            x = attention(query, key, value, ops.take_along_axis(is_visible, rows, axis=2))
            length = ops.shape(query_indices)[1]
        elif cache is not None:
            cache = write_to_cache(cache, key, value, cache_index)
            key, value = cache[:, 0], cache[:, 1]
            is_visible = visible_keys(length, ops.shape(key)[2], first_query=cache_index)
            x = attention(query, key, value, is_visible)
        else:
            x = attention(query, key, value, visible_keys(length, length, branches))
        x = ops.reshape(x, (batch, length, self.num_heads * self.head_dim))
        x = self.output_projection(x)
        return x if cache is None else (x, cache)

    def _split_heads(
        self, qkv: Tensor, batch: int | Tensor, length: int | Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns query, key and value, each `[batch, heads, length, head_dim]`."""
        qkv = ops.reshape(qkv, (batch, length, 3, self.num_heads, self.head_dim))
        qkv = ops.transpose(qkv, (2, 0, 3, 1, 4))  # (3, B, heads, T, head_dim)
        query, key, value = ops.unstack(qkv, 3)
        return query, key, value

    def _sample_kept(self, shape: tuple[int | Tensor, ...]) -> Tensor:
        """Samples which probabilities dropout keeps."""
        return random_mask(shape, 1.0 - self.dropout, self.seed_generator)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_heads": self.num_heads, "dropout": self.dropout}


def attention(query: Tensor, key: Tensor, value: Tensor, is_visible: Tensor) -> Tensor:
    """Returns softmax(q k^T / sqrt(head_dim)) v, with softmax in float32.

    `keras.ops.dot_product_attention` returns the same numbers, but it takes heads after positions,
    and so transposes the whole cache for every new token: 2 to 4 times slower in generation.

    Args:
        query: float `[batch, heads, queries, head_dim]`.
        key: float `[batch, heads, keys, head_dim]`.
        value: as `key`.
        is_visible: bool, which broadcasts to `[batch, heads, queries, keys]`.

    Returns:
        float `[batch, queries, heads, head_dim]`.
    """
    return ops.transpose(attention_by_head(query, key, value, is_visible), (0, 2, 1, 3))


def attention_by_head(query: Tensor, key: Tensor, value: Tensor, is_visible: Tensor) -> Tensor:
    """Returns what `attention` does, `[batch, heads, queries, head_dim]`."""
    scores = masked_scores(query * query.shape[-1] ** -0.5, key, is_visible)
    probabilities = ops.cast(ops.softmax(scores, axis=-1), value.dtype)
    return ops.matmul(probabilities, value)


def write_to_cache(cache: Tensor, key: Tensor, value: Tensor, cache_index: int | Tensor) -> Tensor:
    """Returns the cache with new keys and values from `cache_index` on.

    In core ops: `ops.slice_update` is an XLA op, which TensorFlow Serving does not have.
    """
    new = ops.cast(ops.stack((key, value), axis=1), cache.dtype)
    length, positions = ops.shape(new)[3], ops.arange(ops.shape(cache)[3])
    is_new = (positions >= cache_index) & (positions < cache_index + length)
    if new.shape[3] == 1:
        return ops.where(ops.expand_dims(is_new, 1), new, cache)
    source = ops.where(is_new, positions - cache_index, length + positions)
    return ops.take(ops.concatenate((new, cache), axis=3), source, axis=3)

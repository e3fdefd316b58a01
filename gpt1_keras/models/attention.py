"""Causal self-attention, softmax(q k^T / sqrt(head_dim)) v, in the ways that a model needs it.

- `FullAttention` and `BranchAttention`: in training and inference. They are tuples of tensors, so
  that a block of a functional Keras model can take them.
- `attend_cached` and `attend_at`: in inference, between a block's `project` and its `finish`.

All take what `TransformerBlock.project` returns: queries, keys and values side by side.
"""

from typing import NamedTuple

import keras
from keras import ops

from gpt1_keras.models.custom_gradients.causal_attention import (
    causal_attention,
    masked_scores,
    visible_keys,
    visible_keys_at,
)
from gpt1_keras.models.custom_gradients.graph_execution import random_mask
from gpt1_keras.types import Tensor


class AttentionDropout(NamedTuple):
    """Dropout of the attention probabilities, in training: `rate` is the share that becomes 0."""

    rate: float
    seed_generator: keras.random.SeedGenerator

    def sample_kept(self, shape: tuple[int | Tensor, ...]) -> Tensor:
        """Samples which probabilities are kept: bool of that shape."""
        return random_mask(shape, 1.0 - self.rate, self.seed_generator)


class FullAttention(NamedTuple):
    """A token attends to itself and to all tokens before it; `positions` are int `[length]`."""

    positions: Tensor

    @classmethod
    def of(cls, x: Tensor) -> "FullAttention":
        """Returns the attention for whole sequences, `[batch, length, width]`."""
        return cls(ops.arange(ops.shape(x)[1]))

    def __call__(
        self, qkv: Tensor, num_heads: int, dropout: AttentionDropout | None = None
    ) -> Tensor:
        """Attends: float `[batch, length, 3 * hidden_dim]` to `[batch, length, hidden_dim]`.

        There is dropout in training alone.
        """
        return _attend(qkv, num_heads, dropout)


class BranchAttention(NamedTuple):
    """Like `FullAttention`, but no token attends to another branch after the shared prefix.

    Args:
        positions: int `[batch, length]`, each token's position in its own sequence.
        branches: int `[batch, length]`, see `attention_scores`.
    """

    positions: Tensor
    branches: Tensor

    def __call__(
        self, qkv: Tensor, num_heads: int, dropout: AttentionDropout | None = None
    ) -> Tensor:
        """Like `FullAttention.__call__`."""
        return _attend(qkv, num_heads, dropout, self.branches)


def attend_at(
    qkv: Tensor, num_heads: int, indices: Tensor, branches: Tensor | None = None
) -> Tensor:
    """Computes attention for the tokens at `indices`, int `[batch, queries]`, only.

    `branches` are as in `BranchAttention`. Returns float `[batch, queries, hidden_dim]` from
    `[batch, length, 3 * hidden_dim]`.
    """
    query, key, value = split_heads(qkv, num_heads)
    query = ops.take_along_axis(query, indices[:, None, :, None], axis=2)
    is_visible = visible_keys_at(indices, ops.shape(qkv)[1], branches)
    return join_heads(attention(query, key, value, is_visible))


def attend_cached(qkv: Tensor, cache: Tensor, index: int | Tensor) -> tuple[Tensor, Tensor]:
    """Attends also to earlier tokens, whose keys and values are in a cache.

    The cache is float `[batch, 2, num_heads, max_length, head_dim]`; the keys and values of `qkv`,
    float `[batch, length, 3 * hidden_dim]`, belong at `index`, an int scalar. Returns `(attended,
    cache)`: float `[batch, length, hidden_dim]`, and the cache with the new keys and values.
    """
    query, key, value = split_heads(qkv, num_heads=cache.shape[2])
    cache = _write_to_cache(cache, key, value, index)
    key, value = cache[:, 0], cache[:, 1]  # [batch, heads, max_length, head_dim]
    is_visible = visible_keys(ops.shape(query)[2], ops.shape(key)[2], first_query=index)
    return join_heads(attention(query, key, value, is_visible)), cache


def attention(query: Tensor, key: Tensor, value: Tensor, is_visible: Tensor) -> Tensor:
    """Returns softmax(q k^T / sqrt(head_dim)) v, with softmax in float32.

    `keras.ops.dot_product_attention` returns the same numbers, but it takes heads after positions,
    and so transposes the whole cache for every new token. That makes generation 2 to 4 times
    slower.

    Args:
        query: float `[batch, heads, queries, head_dim]`, as the result.
        key, value: float `[batch, heads, keys, head_dim]`.
        is_visible: bool that broadcasts to `[batch, heads, queries, keys]`.
    """
    scores = masked_scores(query * query.shape[-1] ** -0.5, key, is_visible)
    probabilities = ops.cast(ops.softmax(scores, axis=-1), value.dtype)
    return ops.matmul(probabilities, value)


def split_heads(qkv: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns query, key and value, each float `[batch, heads, length, head_dim]`."""
    batch, length, width = ops.shape(qkv)
    qkv = ops.reshape(qkv, (batch, length, 3, num_heads, width // (3 * num_heads)))
    qkv = ops.transpose(qkv, (2, 0, 3, 1, 4))  # [3, batch, heads, length, head_dim]
    query, key, value = ops.unstack(qkv, 3)
    return query, key, value


def join_heads(x: Tensor) -> Tensor:
    """Returns float `[batch, heads, length, head_dim]` as `[batch, length, hidden_dim]`."""
    return _join_last_axes(ops.transpose(x, (0, 2, 1, 3)))


def _attend(
    qkv: Tensor,
    num_heads: int,
    dropout: AttentionDropout | None,
    branches: Tensor | None = None,
) -> Tensor:
    query, key, value = split_heads(qkv, num_heads)
    if dropout is None:
        length = ops.shape(qkv)[1]
        is_visible = visible_keys(length, length, branches)
        return join_heads(attention(query, key, value, is_visible))
    sample_kept = dropout.sample_kept if dropout.rate else None
    return _join_last_axes(
        causal_attention(query, key, value, sample_kept, 1.0 - dropout.rate, branches)
    )


def _join_last_axes(x: Tensor) -> Tensor:
    """Returns float `[batch, length, heads, head_dim]` as `[batch, length, hidden_dim]`."""
    batch, length, heads, head_dim = ops.shape(x)
    return ops.reshape(x, (batch, length, heads * head_dim))


def _write_to_cache(cache: Tensor, key: Tensor, value: Tensor, index: int | Tensor) -> Tensor:
    """Returns the cache with new keys and values from `index` on.

    It uses core ops: `ops.slice_update` becomes an XLA op, which TensorFlow Serving does not have.
    """
    new = ops.cast(ops.stack((key, value), axis=1), cache.dtype)  # [batch, 2, heads, length, _]
    length, columns = ops.shape(new)[3], ops.arange(ops.shape(cache)[3])
    is_new = (columns >= index) & (columns < index + length)
    if new.shape[3] == 1:
        return ops.where(ops.expand_dims(is_new, 1), new, cache)
    source = ops.where(is_new, columns - index, length + columns)
    return ops.take(ops.concatenate((new, cache), axis=3), source, axis=3)

"""Causal self-attention, softmax(q k^T / sqrt(head_dim)) v, for sequences, branches and caches.

- `FullAttention` and `BranchAttention`: in training and inference. They are tuples of tensors, so
  that a block of a functional Keras model can take them.
- `attend_cached` and `attend_at`: in inference, between a block's `project` and its `finish`.

All take what `TransformerBlock.project` returns: queries, keys and values side by side. In
training they call `causal_attention`, whose gradient does not keep the probabilities: it keeps
softmax's normalizers, and computes the probabilities again in the backward pass.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from gpt1_keras.models.graph_execution import custom_gradient, fused, random_mask, zero_after
from gpt1_keras.types import Tensor

MASKED_SCORE = -1e9  # exp of it is 0 in float32, and no sum of it with a score overflows

_BLOCK_LENGTH = 128  # queries that are computed together


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
        branches: int `[batch, length]`, see `visible_keys`.
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


def visible_keys(
    queries: int | Tensor,
    keys: int | Tensor,
    branches: Tensor | None = None,
    first_query: int | Tensor | None = None,
) -> Tensor:
    """Returns which keys each query sees: those at its own index and before it.

    Args:
        queries: number of queries, at consecutive indices.
        keys: number of keys, from index 0 on.
        branches: optional int `[batch, length]`: 0 in the shared prefix, and 1, 2, ... in the
            branches after it. A query sees no other branch.
        first_query: index of the first query; by default, the queries are the last of the keys.

    Returns bool that broadcasts to `[batch, heads, queries, keys]`.
    """
    first_query = keys - queries if first_query is None else first_query
    indices = first_query + ops.arange(queries)
    is_past = ops.arange(keys) <= indices[:, None]  # [queries, keys]
    if branches is None:
        return is_past
    key_branches = branches[:, None, :keys]  # [batch, 1, keys]
    query_branches = branches[:, first_query:keys, None]  # [batch, queries, 1]
    return ops.expand_dims(is_past & _shares_branch(query_branches, key_branches), 1)


def visible_keys_at(indices: Tensor, keys: int | Tensor, branches: Tensor | None = None) -> Tensor:
    """Returns which of the first `keys` keys the queries at `indices`, int `[batch, queries]`, see.

    `branches` are as in `visible_keys`. Returns bool `[batch, 1, queries, keys]`.
    """
    columns = ops.arange(keys, dtype=indices.dtype)
    is_visible = columns <= indices[:, :, None]  # [batch, queries, keys]
    if branches is not None:
        query_branches = ops.take_along_axis(branches, indices, axis=1)[:, :, None]
        is_visible = is_visible & _shares_branch(query_branches, branches[:, None])
    return ops.expand_dims(is_visible, 1)


def _shares_branch(query_branches: Tensor, key_branches: Tensor) -> Tensor:
    """Returns whether a key is in the shared prefix or in the query's branch."""
    return (key_branches == 0) | (key_branches == query_branches)


def masked_scores(query: Tensor, key: Tensor, is_visible: Tensor) -> Tensor:
    """Returns q k^T, float32 `[batch, heads, queries, keys]`; `MASKED_SCORE` for hidden keys.

    Queries, float `[batch, heads, queries, head_dim]`, are already divided by sqrt(head_dim); keys
    are `[batch, heads, keys, head_dim]`.
    """
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    return ops.where(is_visible, ops.cast(scores, "float32"), MASKED_SCORE)


def causal_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sample_kept: Callable[[tuple[int | Tensor, ...]], Tensor] | None = None,
    keep_probability: float = 1.0,
    branches: Tensor | None = None,
) -> Tensor:
    """Returns softmax(q k^T / sqrt(head_dim)) v over each position and all before it.

    The gradient keeps only query, key, value, output, normalizers and dropout masks. Queries are
    computed in blocks, so most of the scores that the causal mask would hide are never computed.

    Args:
        query, key, value: float `[batch, heads, length, head_dim]`.
        sample_kept: optional function from the shape of a block of probabilities,
            `[batch, heads, queries, keys]`, to a bool tensor: which of them dropout keeps. The
            queries are the last of the keys.
        keep_probability: the share that `sample_kept` keeps.
        branches: optional int `[batch, length]`, see `visible_keys`.

    Returns float `[batch, length, heads, head_dim]`.
    """
    batch, heads, length, _ = ops.shape(query)
    dtype, scale = query.dtype, query.shape[-1] ** -0.5
    blocks = _blocks(query.shape[2])
    kept: list[Tensor] = [None] * len(blocks)
    if sample_kept is not None:
        ends = [length if stop is None else stop for _, stop in blocks]
        kept = [
            sample_kept((batch, heads, end - start, end)) for (start, _), end in zip(blocks, ends)
        ]

    def scores_of(query: Tensor, key: Tensor) -> Tensor:
        is_visible = visible_keys(ops.shape(query)[2], ops.shape(key)[2], branches)
        return masked_scores(query, key, is_visible)

    @custom_gradient
    def attend(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Any]:
        outputs, normalizers = [], []
        for (start, stop), block_kept in zip(blocks, kept):
            scores = scores_of(query[:, :, start:stop] * scale, key[:, :, :stop])
            largest = ops.max(scores, axis=-1, keepdims=True)
            weights = ops.exp(scores - largest)
            total = ops.sum(weights, axis=-1, keepdims=True)
            normalizers.append(largest + ops.log(total))
            output = ops.matmul(ops.cast(_drop(weights, block_kept), dtype), value[:, :, :stop])
            outputs.append(output / ops.cast(total * keep_probability, dtype))
        output = ops.transpose(ops.concatenate(outputs, axis=2), (0, 2, 1, 3))

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, ...]:
            upstream = args[0] if upstream is None else upstream
            zero = zero_after(upstream)
            late_query, late_key, late_value = (query + zero) * scale, key + zero, value + zero
            # softmax's gradient subtracts the mean gradient of each row of probabilities.
            means = ops.sum(ops.cast(upstream, "float32") * ops.cast(output, "float32"), axis=-1)
            means = ops.transpose(means, (0, 2, 1))[..., None]
            upstream = ops.transpose(upstream, (0, 2, 1, 3))
            query_gradients, key_gradient, value_gradient = [], 0.0, 0.0
            for (start, stop), block_kept, normalizer in zip(blocks, kept, normalizers):
                block_query = late_query[:, :, start:stop]
                block_key, block_value = late_key[:, :, :stop], late_value[:, :, :stop]
                block_upstream = upstream[:, :, start:stop] / keep_probability
                scores_gradient, dropped = _softmax_gradient(
                    scores_of(block_query, block_key),
                    normalizer,
                    ops.matmul(block_upstream, _transpose(block_value)),
                    means[:, :, start:stop],
                    block_kept,
                )
                query_gradients.append(ops.matmul(scores_gradient, block_key))
                key_gradient += _pad_keys(
                    ops.matmul(_transpose(scores_gradient), block_query), length
                )
                value_gradient += _pad_keys(ops.matmul(_transpose(dropped), block_upstream), length)
            query_gradient = ops.concatenate(query_gradients, axis=2) * scale
            return query_gradient, key_gradient, value_gradient

        return output, gradient

    return attend(query, key, value)


@fused
def _softmax_gradient(
    scores: Tensor, normalizer: Tensor, upstream: Tensor, means: Tensor, kept: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Returns `(gradient of the scores, probabilities after dropout)`, of `upstream`'s dtype."""
    probabilities = ops.exp(scores - normalizer)
    of_probabilities = _drop(ops.cast(upstream, "float32"), kept)
    scores_gradient = (of_probabilities - means) * probabilities
    dropped = _drop(probabilities, kept)
    return ops.cast(scores_gradient, upstream.dtype), ops.cast(dropped, upstream.dtype)


def _drop(x: Tensor, kept: Tensor | None) -> Tensor:
    return x if kept is None else ops.where(kept, x, ops.zeros((), x.dtype))


def _blocks(length: int | None) -> list[tuple[int, int | None]]:
    """Returns each block's start and stop position; one block for an unknown length."""
    if not isinstance(length, int):
        return [(0, None)]
    starts = range(0, length, _BLOCK_LENGTH)
    return [(start, min(start + _BLOCK_LENGTH, length)) for start in starts]


def _pad_keys(x: Tensor, length: int | Tensor) -> Tensor:
    """Adds zeros for the keys that a block does not reach."""
    return ops.pad(x, ((0, 0), (0, 0), (0, length - ops.shape(x)[2]), (0, 0)))


def _transpose(x: Tensor) -> Tensor:
    """Swaps the last two axes."""
    return ops.transpose(x, (0, 1, 3, 2))

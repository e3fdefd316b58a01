"""The scores of causal attention: which keys each query sees, and how well they match.

Several sequences that begin with the same tokens can be laid out as *branches after a shared
prefix*: the prefix once, followed by the rest of each sequence. `branches`, int `[batch, length]`,
says where each token belongs: 0 in the shared prefix, n from 1 on in the nth branch, and -1 in the
padding. A token sees the prefix and its own branch, so it has the same hidden state as in its
sequence alone.
"""

from keras import ops

from gpt1_keras.types import Tensor

MASKED_SCORE = -1e9  # exp of it is 0 in float32, and no sum of it with a score overflows


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
        branches: optional int `[batch, length]`, see above. A query sees no other branch.
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

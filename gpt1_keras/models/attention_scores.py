"""The scores of causal attention: which keys each query sees, and how well they match.

Several sequences that begin with the same tokens can be laid out as *branches after a shared
prefix*: the prefix once, followed by the rest of each sequence. `branches`, int `[batch, length]`,
says where each token belongs: 0 in the shared prefix, n from 1 on in the nth branch, and -1 in the
padding. A token sees the prefix and its own branch, so that its hidden state is the one it would
have in its sequence alone.
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
    """Returns which keys each query sees: those at its own position and before it.

    Args:
        queries: number of queries, which follow each other.
        keys: number of keys, from position 0 on.
        branches: optional int `[batch, length]`, see above. A query sees no other branch.
        first_query: position of the first query; by default, the queries are the last of the keys.

    Returns:
        bool, which broadcasts to `[batch, heads, queries, keys]`.
    """
    first_query = keys - queries if first_query is None else first_query
    positions = first_query + ops.arange(queries)
    is_past = ops.arange(keys) <= positions[:, None]
    if branches is None:
        return is_past
    of_keys = branches[:, :keys]
    of_queries = of_keys[:, first_query:, None]
    of_keys = of_keys[:, None]
    return ops.expand_dims(is_past & ((of_keys == 0) | (of_keys == of_queries)), 1)


def masked_scores(query: Tensor, key: Tensor, is_visible: Tensor) -> Tensor:
    """Returns the scores before softmax, q k^T / sqrt(head_dim).

    Args:
        query: float `[batch, heads, queries, head_dim]`, already divided by sqrt(head_dim).
        key: float `[batch, heads, keys, head_dim]`.
        is_visible: bool, from `visible_keys`.

    Returns:
        float32 `[batch, heads, queries, keys]`, `MASKED_SCORE` where a key is not visible.
    """
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    return ops.where(is_visible, ops.cast(scores, "float32"), MASKED_SCORE)

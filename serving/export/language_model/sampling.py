"""Samples the next tokens of many texts, each by its own options."""

import numpy as np
import tensorflow as tf

_TINY = np.finfo(np.float32).tiny  # processors may treat smaller numbers as 0


def uniform_numbers(seeds: tf.Tensor, count: int) -> tf.Tensor:
    """Returns `count` numbers in [0, 1) for each text, independent of the other texts.

    Args:
        seeds: int32 `[batch]`.

    Returns:
        float32 `[batch, count]`.
    """
    return tf.map_fn(
        lambda seed: tf.random.stateless_uniform([count], tf.stack([seed, 0])),
        seeds,
        fn_output_signature=tf.float32,
    )


def sample_tokens(
    logits: tf.Tensor,
    uniform: tf.Tensor,
    temperature: tf.Tensor,
    top_k: tf.Tensor,
    top_p: tf.Tensor,
) -> tf.Tensor:
    """Samples a token for each text by the inverse of the tokens' distribution function.

    Args:
        logits: float32 `[batch, vocabulary_size]`.
        uniform: float32 `[batch]`, numbers in [0, 1).
        temperature: float32 `[batch]`, 0 for the likeliest token.
        top_k: int32 `[batch]`, the number of likeliest tokens to choose from, 0 for all.
        top_p: float32 `[batch]`: of these, only the likeliest that together have this probability,
            at least one; 1 for all.

    Returns:
        int32 `[batch]`, ids.
    """
    vocabulary_size = tf.shape(logits)[1]
    is_greedy, is_nucleus = temperature < _TINY, top_p < 1.0
    has_all = (top_k == 0) | (top_k >= vocabulary_size)
    from_all = ~is_greedy & ~is_nucleus & has_all
    # Only as many tokens are sorted as a text needs; texts that choose from all need none.
    count = tf.where(has_all, vocabulary_size, top_k)
    count = tf.where(is_greedy | from_all, 1, count)
    values, ids = tf.math.top_k(logits, tf.reduce_max(tf.concat([count, [1]], axis=0)))
    is_kept = tf.range(tf.shape(values)[1]) < count[:, tf.newaxis]
    divisor = tf.where(is_greedy, 1.0, temperature)
    values = tf.where(is_kept, values, float("-inf"))
    likelier = tf.cumsum(tf.nn.softmax(values / divisor[:, tf.newaxis]), axis=-1, exclusive=True)
    is_kept = ~is_nucleus[:, tf.newaxis] | (likelier < top_p[:, tf.newaxis])
    values = tf.where(is_kept, values, float("-inf"))
    tokens = tf.gather(ids, _sample(values, uniform, divisor), batch_dims=1)
    rows = tf.where(from_all)
    logits, uniform, divisor = (tf.gather_nd(each, rows) for each in (logits, uniform, divisor))
    return tf.tensor_scatter_nd_update(tokens, rows, _sample(logits, uniform, divisor))


def _sample(logits: tf.Tensor, uniform: tf.Tensor, temperature: tf.Tensor) -> tf.Tensor:
    """Samples columns, int32 `[batch]`, and never one whose logit is minus infinity."""
    largest = tf.reduce_max(logits, axis=-1, keepdims=True)
    weights = tf.exp((logits - largest) / temperature[:, tf.newaxis])
    # A column's sum does not depend on how many columns come after it.
    cumulative = tf.cumsum(weights, axis=-1)
    reached = (uniform * cumulative[:, -1])[:, tf.newaxis]
    index = tf.reduce_sum(tf.cast(cumulative <= reached, tf.int32), axis=-1)
    return tf.minimum(index, tf.shape(logits)[1] - 1)

"""Sampling the next tokens of many texts, each by its own options."""

import tensorflow as tf


def uniform_numbers(seeds: tf.Tensor, count: int) -> tf.Tensor:
    """Returns so many numbers in [0, 1) for each text, whatever the other texts are.

    Args:
        seeds: int32 `[batch]`.
        count: of each text's numbers.

    Returns:
        float32 `[batch, count]`.
    """
    return tf.map_fn(
        lambda seed: tf.random.stateless_uniform([count], tf.stack([seed, 0])),
        seeds,
        fn_output_signature=tf.float32,
    )


def sample_tokens(
    logits: tf.Tensor, uniform: tf.Tensor, temperature: tf.Tensor, top_k: tf.Tensor
) -> tf.Tensor:
    """Samples a token for each text by the inverse of the tokens' distribution function.

    Args:
        logits: float32 `[batch, vocabulary_size]`.
        uniform: float32 `[batch]`, numbers in [0, 1).
        temperature: float32 `[batch]`, 0 for the likeliest token.
        top_k: int32 `[batch]`, the number of likeliest tokens to choose from, 0 for all.

    Returns:
        int32 `[batch]`, ids.
    """
    count = tf.where(top_k > 0, tf.minimum(top_k, tf.shape(logits)[1]), tf.shape(logits)[1])
    count = tf.where(temperature > 0.0, count, 1)
    values, ids = tf.math.top_k(logits, tf.reduce_max(count))
    is_kept = tf.range(tf.shape(values)[1]) < count[:, tf.newaxis]
    values /= tf.where(temperature > 0.0, temperature, 1.0)[:, tf.newaxis]
    cumulative = tf.cumsum(tf.nn.softmax(tf.where(is_kept, values, float("-inf"))), axis=-1)
    index = tf.reduce_sum(tf.cast(cumulative <= uniform[:, tf.newaxis], tf.int32), axis=-1)
    return tf.gather(ids, tf.minimum(index, count - 1), batch_dims=1)

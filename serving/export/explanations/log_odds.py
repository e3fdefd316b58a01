"""The number that is explained if the answer is a class or a choice."""

import tensorflow as tf

from gpt1_keras.tasks.heads import ABSENT_CHOICE_LOGIT


def log_odds(logits: tf.Tensor, answer: tf.Tensor) -> tf.Tensor:
    """Returns log(p / (1 - p)) of the answers' probabilities p under the softmax of logits.

    Unlike a logit, it does not change if all logits grow alike. Unlike a probability, it still
    changes where p is near 0 or 1.

    Args:
        logits: float `[batch, n]`, or logarithms of probabilities.
        answer: int32 `[batch]`, the index of each example's answer.

    Returns:
        float32 `[batch]`, in nats; the logit itself if there is no other logit.
    """
    logits = tf.cast(logits, tf.float32)
    is_answer = tf.one_hot(answer, tf.shape(logits)[1], True, False)
    others = tf.reduce_logsumexp(tf.where(is_answer, ABSENT_CHOICE_LOGIT, logits), axis=-1)
    has_others = others > ABSENT_CHOICE_LOGIT / 2.0
    return tf.gather(logits, answer, batch_dims=1) - tf.where(has_others, others, 0.0)

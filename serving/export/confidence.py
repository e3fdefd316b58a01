"""The confidence of an export's answers: their scores, and the log-odds that are explained."""

import tensorflow as tf

from gpt1_keras.tasks.heads import ABSENT_CHOICE_LOGIT
from gpt1_keras.tasks.task import Task


def confidence_of(model: Task, answers: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the outputs that say how sure a task's answers are.

    Args:
        model: a task with classes or choices.
        answers: the result of its `predict_outputs`, float `[batch, classes or choices]`.

    Returns:
        `scores`, calibrated probabilities of the same shape; and, if the model has a threshold,
        `is_sure`, bool `[batch]`.
    """
    scores = model.probabilities(answers)
    calibration = model.calibration
    if calibration is None or calibration.sure_threshold is None:
        return {"scores": scores}
    return {"scores": scores, "is_sure": calibration.is_sure(scores)}


def calibrated_log_odds(model: Task, answers: tf.Tensor, answer: tf.Tensor) -> tf.Tensor:
    """Returns `log_odds` of the scores, float32 `[batch]`.

    Args:
        model: a task with classes or choices, whose outputs are logits or probabilities of a
            softmax.
        answers: the result of its `predict_outputs`.
        answer: int32 `[batch]`, the index of each example's answer.
    """
    calibration = model.calibration
    assert calibration is not None  # as the task has classes or choices
    return log_odds(model.task_head.logits(answers) / calibration.temperature, answer)


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

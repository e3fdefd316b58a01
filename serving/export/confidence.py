"""How sure an export is of its answers."""

import tensorflow as tf

from gpt1_keras.tasks.task import Task


def confidence_of(model: Task, answers: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the outputs that say how sure a task's answers are.

    Args:
        model: a task with classes or choices.
        answers: what its `predict_outputs` returns, float `[batch, classes or choices]`.

    Returns:
        `scores`, calibrated probabilities of the same shape; and, if the model has a threshold,
        `is_sure`, bool `[batch]`.
    """
    scores = model.probabilities(answers)
    calibration = model.calibration
    if calibration is None or calibration.sure_threshold is None:
        return {"scores": scores}
    return {"scores": scores, "is_sure": calibration.is_sure(scores)}


def calibrated_logits(model: Task, answers: tf.Tensor) -> tf.Tensor:
    """Returns what the scores are the softmax of, float as the answers.

    Args:
        model: as for `confidence_of`, with logits, or the probabilities of a softmax.
        answers: what its `predict_outputs` returns.
    """
    calibration = model.calibration
    assert calibration is not None  # as the task has classes or choices
    return model.task_head.logits(answers) / calibration.temperature

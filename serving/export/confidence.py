"""The confidence of an export's answers."""

import tensorflow as tf

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


def calibrated_logits(model: Task, answers: tf.Tensor) -> tf.Tensor:
    """Returns the logits whose softmax the scores are, float of the answers' shape.

    Args:
        model: a task with classes or choices, whose outputs are logits or probabilities of a
            softmax.
        answers: the result of its `predict_outputs`.
    """
    calibration = model.calibration
    assert calibration is not None  # as the task has classes or choices
    return model.task_head.logits(answers) / calibration.temperature

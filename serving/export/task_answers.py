"""The answers of exported fine-tuned tasks: classes, scores or choices, and how sure they are."""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import keras
import tensorflow as tf

from gpt1_keras.tasks.heads import ABSENT_CHOICE_LOGIT
from gpt1_keras.tasks.label_heads import is_softmax
from gpt1_keras.tasks.task import Task
from serving.export.signature import Tensors
from serving.export_names import CLASSIFY, REGRESS


@dataclasses.dataclass(frozen=True)
class Answers:
    """What an export makes of a task's answers.

    Args:
        outputs: maps what the model's `predict_outputs` returns to named outputs `[batch, ...]`.
        explained: for `explain`, maps the same, float `[batch, n]`, and the index of each example's
            answer, int32 `[batch]`, to the number that words have shares in, float32 `[batch]`.
            None for a task that is not explained.
        of_examples: functions by the name of a signature of tf.Examples, `classify` or `regress`:
            each maps the texts and the outputs of `serving_default` to its signature's outputs.
    """

    outputs: Callable[[tf.Tensor], Tensors]
    explained: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None
    of_examples: Mapping[str, Callable[[Tensors, Tensors], Tensors]] = dataclasses.field(
        default_factory=dict
    )


def class_or_score_answers(model: Task) -> Answers:
    """Returns the answers of an export of a classifier, or of a task that answers with a number.

    A number is a score in a range, or what the head of a single class returns.

    - With classes: `label`, string `[batch]`; `scores`, float `[batch, classes]`; `classes`, string
      of this shape, their names; `score`, float `[batch]`, that of the label; and, if the model has
      a threshold, `is_sure`, bool `[batch]`. With a sigmoid, `labels` in place of `score`, string
      `[batch, classes]`: each class's name if its score is above 0.5, otherwise an empty one.
      `explain` explains the log-odds of a class, or, with an activation other than softmax, its
      output.
    - Otherwise: `score`, float `[batch]`.
    """
    if model.class_names is None:
        return Answers(
            outputs=lambda answers: {"score": model.score_of(answers)},
            explained=lambda answers, answer: model.score_of(answers),
            of_examples={REGRESS: lambda texts, outputs: {"outputs": outputs["score"]}},
        )
    class_names = tf.constant(model.class_names)

    def outputs(answers: tf.Tensor) -> Tensors:
        confidence = confidence_of(model, answers)
        scores = confidence["scores"]
        best = tf.argmax(scores, axis=-1)
        found = {
            "label": tf.gather(class_names, best),
            "classes": tf.broadcast_to(class_names, tf.shape(scores)),
            **confidence,
        }
        if model.task_head.is_multi_label:
            return {**found, "labels": tf.where(scores > 0.5, class_names, "")}
        return {**found, "score": tf.reduce_max(scores, axis=-1)}

    def explained(answers: tf.Tensor, answer: tf.Tensor) -> tf.Tensor:
        if model.activation is keras.activations.linear or is_softmax(model.activation):
            return calibrated_log_odds(model, answers, answer)
        return tf.gather(answers, answer, batch_dims=1)

    def classify(texts: Tensors, outputs: Tensors) -> Tensors:
        return {name: outputs[name] for name in ("classes", "scores")}

    return Answers(outputs, explained, {CLASSIFY: classify})


def choice_answers(model: Task) -> Answers:
    """Returns the answers of an export of multiple choice.

    They are `choice`, int32 `[batch]`, the index of the best choice; `scores`, float `[batch,
    choices]`, probabilities, 0 where there is no choice; `score`, float `[batch]`, that of the best
    choice; and, if the model has a threshold, `is_sure`, bool `[batch]`. `explain` explains the
    log-odds of a choice.
    """
    field = model.preprocessor.fields[-1]

    def outputs(answers: tf.Tensor) -> Tensors:
        confidence = confidence_of(model, answers)
        scores = confidence["scores"]
        choice = tf.argmax(scores, axis=-1, output_type=tf.int32)
        return {"choice": choice, "score": tf.reduce_max(scores, axis=-1), **confidence}

    def classify(texts: Tensors, outputs: Tensors) -> Tensors:
        return {"classes": texts[field].to_tensor(""), "scores": outputs["scores"]}

    return Answers(outputs, functools.partial(calibrated_log_odds, model), {CLASSIFY: classify})


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

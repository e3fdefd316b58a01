"""The signatures of a task that answers with a class or a number."""

import keras
import tensorflow as tf

from gpt1_keras.tasks.label_heads import is_softmax
from gpt1_keras.tasks.task import Task
from serving.export.answers import Answers
from serving.export.confidence import calibrated_log_odds, confidence_of
from serving.export.export_spec import ExportSpec
from serving.export.signature import Signatures, Tensors
from serving.export.task_signatures import task_signatures
from serving.export_names import CLASSIFY, REGRESS


def class_or_score_signatures(spec: ExportSpec) -> Signatures:
    """Returns the signatures of a classifier, or of a task that answers with a number.

    A number is a score in a range, or what the head of a single class returns.
    """
    return task_signatures(spec, class_or_score_answers(spec.model))


def class_or_score_answers(model: Task) -> Answers:
    """Returns the answers of an export of such a task.

    - With classes: `label`, string `[batch]`; `scores`, float `[batch, classes]`; and, if the model
      has a threshold, `is_sure`, bool `[batch]`. With a sigmoid, also `labels`, string `[batch,
      classes]`: each class's name if its score is above 0.5, otherwise an empty one. `explain`
      explains the log-odds of a class, or, with an activation other than softmax, its output.
    - Otherwise: `score`, float `[batch]`.
    """
    return _score_answers(model) if model.class_names is None else _class_answers(model)


def _class_answers(model: Task) -> Answers:
    class_names = tf.constant(model.class_names)

    def outputs(answers: tf.Tensor) -> Tensors:
        confidence = confidence_of(model, answers)
        best = tf.argmax(confidence["scores"], axis=-1)
        found = {"label": tf.gather(class_names, best), **confidence}
        if model.task_head.is_multi_label:
            found["labels"] = tf.where(confidence["scores"] > 0.5, class_names, "")
        return found

    def explained(answers: tf.Tensor, answer: tf.Tensor) -> tf.Tensor:
        if model.activation is keras.activations.linear or is_softmax(model.activation):
            return calibrated_log_odds(model, answers, answer)
        return tf.gather(answers, answer, batch_dims=1)

    def classify(texts: Tensors, outputs: Tensors) -> Tensors:
        scores = outputs["scores"]
        return {"classes": tf.tile([class_names], [tf.shape(scores)[0], 1]), "scores": scores}

    return Answers(outputs, explained, {CLASSIFY: classify})


def _score_answers(model: Task) -> Answers:
    return Answers(
        outputs=lambda answers: {"score": model.score_of(answers)},
        explained=lambda answers, answer: model.score_of(answers),
        of_examples={REGRESS: lambda texts, outputs: {"outputs": outputs["score"]}},
    )

"""The tasks that can be exported: what each answers, its signatures and its metric."""

import functools

import keras
import tensorflow as tf

from gpt1_keras import GPT1CausalLM, GPT1MultipleChoice, GPT1TextClassifier, GPT1TextSimilarity
from gpt1_keras.tasks.label_heads import is_softmax
from gpt1_keras.tasks.task import Task
from serving.export.choice_inputs import ChoiceInputs
from serving.export.confidence import calibrated_log_odds, confidence_of
from serving.export.embedding import embed_signature
from serving.export.export_spec import ExportSpec
from serving.export.language_model.language_model_signatures import language_model_signatures
from serving.export.signature import Answers, Signatures, Tensors
from serving.export.task_signatures import task_signatures
from serving.export.validation_metrics import (
    Metric,
    choice_metric,
    class_or_score_metric,
    language_model_metric,
)
from serving.export_names import CLASSIFY, EMBED, REGRESS
from serving.registry import TaskEntry, find_part


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


def choice_signatures(spec: ExportSpec) -> Signatures:
    """Returns the signatures of multiple choice.

    Outputs are `label`, string `[batch]`, the best choice; `choice`, int32 `[batch]`, its index;
    and `scores`, float `[batch, choices]`, probabilities, 0 where there is no choice. If the model
    has a threshold, there is also `is_sure`, bool `[batch]`. The signature `tokens` returns no
    `label`. For `blank`, context and question together are one text, and each choice is another.
    `explain` explains the log-odds of a choice.
    """
    model, inputs = spec.model, ChoiceInputs(spec.model)

    def outputs(answers: tf.Tensor) -> Tensors:
        confidence = confidence_of(model, answers)
        choice = tf.argmax(confidence["scores"], axis=-1, output_type=tf.int32)
        return {"choice": choice, **confidence}

    def classify(texts: Tensors, outputs: Tensors) -> Tensors:
        return {"classes": inputs.dense_choices(texts), "scores": outputs["scores"]}

    explained = functools.partial(calibrated_log_odds, model)
    return task_signatures(spec, Answers(outputs, explained, {CLASSIFY: classify}), inputs)


_CLASS_OR_SCORE = TaskEntry(class_or_score_signatures, class_or_score_metric)
_TASKS = {
    GPT1TextClassifier: _CLASS_OR_SCORE,
    GPT1TextSimilarity: _CLASS_OR_SCORE,
    GPT1MultipleChoice: TaskEntry(choice_signatures, choice_metric),
    GPT1CausalLM: TaskEntry(language_model_signatures, language_model_metric),
}


def signatures_of(spec: ExportSpec) -> Signatures:
    """Returns the signatures that a task is exported with.

    Raises:
        ValueError: the model has no preprocessor, or is not a task that can be exported with these
            options.
    """
    signatures: Signatures = find_part(spec.model, _TASKS, "signatures", "be exported")(spec)
    if spec.embedding:
        signatures.by_name[EMBED] = embed_signature(
            spec, spec.embedding, signatures.sequence_length
        )
    return signatures


def metric_of(model: Task) -> Metric:
    """Returns the metric of a task.

    Raises:
        ValueError: the model has no preprocessor, or is not a task with a metric.
    """
    return find_part(model, _TASKS, "metric", "be validated")(model)

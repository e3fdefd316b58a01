"""The tasks that can be exported, each with its signatures and its metric."""

from gpt1_keras import GPT1CausalLM, GPT1MultipleChoice, GPT1TextClassifier, GPT1TextSimilarity
from gpt1_keras.tasks.task import Task
from serving.export.embedding import embed_signature
from serving.export.language_model_signatures import language_model_signatures
from serving.export.signature import ExportSpec, Signatures
from serving.export.task_answers import choice_answers, class_or_score_answers
from serving.export.task_signatures import task_signatures
from serving.export.text_inputs import ChoiceInputs
from serving.export.validation import (
    Metric,
    choice_metric,
    class_or_score_metric,
    language_model_metric,
)
from serving.export_names import EMBED
from serving.registry import TaskEntry, find_part


def class_or_score_signatures(spec: ExportSpec) -> Signatures:
    """Returns the signatures of a classifier, or of a task that answers with a number."""
    return task_signatures(spec, class_or_score_answers(spec.model))


def choice_signatures(spec: ExportSpec) -> Signatures:
    """Returns the signatures of multiple choice.

    Outputs are those of `choice_answers` and `label`, string `[batch]`, the best choice, which the
    signature `tokens` lacks. For `blank`, context and question together are one text, and each
    choice is another.
    """
    return task_signatures(spec, choice_answers(spec.model), ChoiceInputs(spec.model))


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

"""The signatures of a multiple-choice task's export."""

import functools

import tensorflow as tf

from serving.export.answers import Answers
from serving.export.choice_inputs import ChoiceInputs
from serving.export.confidence import calibrated_log_odds, confidence_of
from serving.export.export_spec import ExportSpec
from serving.export.signature import Signatures, Tensors
from serving.export.task_signatures import task_signatures
from serving.export_names import CLASSIFY


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

"""The common parts of all tasks' graphs on a device."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from gpt1_keras.tasks.task import Task
from serving.export.confidence import confidence_of
from serving.export_names import TEXT, TOKENIZE, TOKENS

INT = tf.int32  # and float32: the types that LiteRT's Kotlin and JavaScript have in common

Tensors: TypeAlias = dict[str, tf.Tensor]
Specs: TypeAlias = Mapping[str, tf.TensorSpec]
# The model's inputs by name; and, as scalars, `num_tokens`, `truncated` and `blank`.
Framed: TypeAlias = tuple[Tensors, tf.Tensor, tf.Tensor, tf.Tensor]
# Functions of named tensors of fixed shapes, and their inputs' specs, by the signature's name.
Signatures: TypeAlias = Mapping[str, tuple[Callable[..., Tensors], Specs]]


@dataclasses.dataclass(frozen=True)
class DeviceSpec:
    """What a .tflite file is made of.

    Args:
        model: a task with a preprocessor.
        max_bytes: the most bytes of the text in each field.
        sequence_length: the most tokens of a framed text.
        num_choices: the most choices of an example, if the task has choices.
    """

    model: Task
    max_bytes: Mapping[str, int]
    sequence_length: int
    num_choices: int | None = None


@dataclasses.dataclass(frozen=True)
class DeviceGraph:
    """The signatures of a .tflite file.

    Args:
        signatures: its functions.
        modules: the modules with the weights that the functions read.
        vocabulary: the tokens in the order of their ids, for the file's metadata, or None.
    """

    signatures: Signatures
    modules: Sequence[tf.Module]
    vocabulary: Sequence[str] | None = None


def task_graph(
    text_specs: Specs,
    token_specs: Specs,
    frame: Callable[[Tensors], Framed],
    answer: Callable[..., Tensors],
    modules: Sequence[tf.Module],
) -> DeviceGraph:
    """Returns the graph of a fine-tuned task.

    Its signatures:

    - `text`: maps each field, int32 `[max_bytes]`, to the task's answers, `num_tokens`, int32
      `[1]`; `truncated`, int32 `[1]`: 1 if a text was cut, or fills its input and so may have
      been longer; and `blank`, int32 `[1]`: 1 if a text has no token.
    - `tokenize`: maps the same texts to the model's inputs, `num_tokens`, `truncated` and `blank`.
    - `tokens`: maps the model's inputs to the answers.

    Args:
        text_specs: the specs of the texts by field.
        token_specs: the specs of the model's inputs by name.
        frame: from the texts by field to what the model reads.
        answer: from the model's inputs to the named answers.
        modules: the modules with the weights that `answer` reads.
    """

    def tokenize(**texts: tf.Tensor) -> Tensors:
        inputs, num_tokens, truncated, is_blank = frame(texts)
        told = {"truncated": flag(truncated), "blank": flag(is_blank)}
        return {**inputs, "num_tokens": num_tokens[tf.newaxis], **told}

    def answer_texts(**texts: tf.Tensor) -> Tensors:
        outputs = tokenize(**texts)
        answers = answer(**{name: outputs[name] for name in token_specs})
        return answers | {name: outputs[name] for name in ("num_tokens", "truncated", "blank")}

    signatures = {
        TEXT: (answer_texts, text_specs),
        TOKENIZE: (tokenize, text_specs),
        TOKENS: (answer, token_specs),
    }
    return DeviceGraph(signatures, modules)


def refuse_choices(spec: DeviceSpec) -> None:
    """Raises ValueError if a number of choices is given for a task without choices."""
    if spec.num_choices is not None:
        raise ValueError(
            f"A {type(spec.model).__name__} has no choices. Received: "
            f"num_choices={spec.num_choices}."
        )


def confidence_of_one(model: Task, answers: tf.Tensor) -> Tensors:
    """Like `serving.export.confidence.confidence_of`, for one example: bool is int32 `[1]`."""
    found = confidence_of(model, answers)
    outputs = {"scores": found["scores"][0]}
    return outputs | {name: flag(found[name][0]) for name in found.keys() - outputs.keys()}


def fills(texts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns whether a text, int32 `[max_bytes]` each, fills its input: bool scalar.

    Such a text has no zero after it, and may have been longer.
    """
    return tf.reduce_any(tf.stack([text[-1] for text in texts]) != 0)


def flag(condition: tf.Tensor) -> tf.Tensor:
    """Returns a bool scalar as int32 `[1]`."""
    return tf.cast(condition, INT)[tf.newaxis]

"""GPT1MultipleChoicePreprocessor: raw strings to the multiple-choice task's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tokenization.input_transformations import frame_choices, pad_choices
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1MultipleChoicePreprocessor(FieldsPreprocessor):
    """Tokenizes, frames, truncates and pads contexts, questions and their choices.

    Args:
        tokenizer: `GPT1Tokenizer`.
        sequence_length: the most tokens of context, question and one choice, special tokens
            included.
        fields: names of the context, optionally of the question, and of the choices.

    Call arguments:
        x: a tuple of strings, or a dict by field: context and question `[batch]`, and choices
            `[batch, choices]`; a ragged tensor or nested lists where examples differ in the number
            of their choices. In a dense tensor, an empty string is an absent choice.
        y: the indices of the right choices, passed through.
        sample_weight: passed through.

    Returns:
        dict as `pad_choices` of `input_transformations` returns it; with `y`, a tuple as Keras's
        `fit` takes it.

    Raises:
        ValueError: the texts do not match the fields, or have other shapes.
        tf.errors.InvalidArgumentError: an example has no choices, or a label is not the index of
            one.
    """

    field_counts = (2, 3)
    field_purpose = "a context, an optional question, and choices"

    def __init__(
        self,
        tokenizer: GPT1Tokenizer,
        sequence_length: int = 512,
        fields: Sequence[str] = ("context", "question", "choices"),
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, fields, **kwargs)

    def transform(self, texts: list[Any]) -> tuple[dict[str, tf.RaggedTensor], tf.Tensor]:
        """As `FieldsPreprocessor.transform`, as `frame_choices` returns them."""
        *texts, choices = texts
        context, *question, choice_ids = self.tokenizer.tokenize_each([*texts, choices.values])
        return frame_choices(
            context,
            question[0] if question else context[:, :0],
            choices.with_values(choice_ids),
            self.tokenizer,
            self.sequence_length,
        )

    def call(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        x = self.as_tensors(x)
        counts = x[self.fields[-1]].row_lengths()
        _check(counts > 0, "Every example needs a choice. Received numbers of choices:", counts)
        if y is not None:
            is_index = (tf.cast(y, tf.int64) >= 0) & (tf.cast(y, tf.int64) < counts)
            _check(is_index, "Labels must be indices of choices, from 0. Received:", y)
        return super().call(x, y, sample_weight)

    def pad(self, framed: dict[str, tf.RaggedTensor]) -> dict[str, tf.Tensor]:
        """Pads what `transform` returns to the model's inputs, as `pad_choices` returns them."""
        return pad_choices(framed, self.tokenizer, self.sequence_length)

    def count_tokens(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.reduce_sum(tf.cast(inputs["branches"] >= 0, tf.int32), axis=-1)

    def as_tensors(self, x: Any) -> dict[str, Any]:
        """As `FieldsPreprocessor.as_tensors`, the choices ragged `[batch, None]`."""
        texts = self.by_field(x if isinstance(x, dict) else tuple(x))
        *names, choices = self.fields
        tensors = {name: tf.convert_to_tensor(texts[name], tf.string) for name in names}
        tensors[choices] = _present_choices(texts[choices])
        ranks = [tensor.shape.rank for tensor in tensors.values()]
        if ranks != [1] * len(names) + [2]:
            raise ValueError(
                "Expected strings of shapes [batch], and [batch, choices] for the choices. "
                f"Received ranks: {dict(zip(tensors, ranks))}."
            )
        return tensors


def _present_choices(choices: Any) -> tf.RaggedTensor | tf.Tensor:
    """The choices that are present, ragged `[batch, None]`; of another rank, unchanged."""
    if isinstance(choices, (list, tuple)):
        choices = tf.ragged.constant(choices, dtype=tf.string)
    if isinstance(choices, tf.RaggedTensor):
        return choices
    choices = tf.convert_to_tensor(choices, tf.string)
    if choices.shape.rank != 2:
        return choices
    is_present = choices != ""
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(choices, is_present),
        tf.reduce_sum(tf.cast(is_present, tf.int64), axis=1),
        validate=False,
    )


def _check(are_valid: tf.Tensor, message: str, received: Any) -> None:
    """Raises tf.errors.InvalidArgumentError unless all are valid, in eager mode and in graphs."""
    tf.debugging.Assert(tf.reduce_all(are_valid), [message, received])

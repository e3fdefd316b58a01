"""GPT1MultipleChoicePreprocessor: raw strings to the multiple-choice task's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import keras_hub

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tokenization.backend import text_backend
from gpt1_keras.tokenization.input_transformations import ROUND_ROBIN
from gpt1_keras.tokenization.padding import PadTo
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1MultipleChoicePreprocessor(FieldsPreprocessor, keras_hub.models.Preprocessor):
    """Tokenizes, frames, truncates and pads contexts, questions and their choices.

    Args:
        tokenizer: `GPT1Tokenizer`.
        sequence_length: the most tokens of context, question and one choice together, with special
            tokens. All choices of an example together are padded to this length, or to 2, 4, 8, ...
            times it.
        fields: names of the context, the question (optional) and the choices.
        truncate: as in `GPT1TextClassifierPreprocessor`; the first text is the context with the
            question, and the second is a choice.

    Call arguments:
        x: a tuple of strings, or a dict by field: context and question `[batch]`, and choices
            `[batch, choices]`. If examples differ in their number of choices, these are a ragged
            tensor or nested lists; in a dense tensor, empty strings after an example's last choice
            are no choices. One example has no axis `batch`.
        y: the indices of the right choices, passed through.
        sample_weight: passed through.
        pad_to: as in `GPT1TextClassifierPreprocessor`.

    Returns:
        dict, as `pad_choices` in `padding` returns it, without `batch` for one example; with `y`, a
        tuple for Keras's `fit`.

    Raises:
        ValueError: the texts do not match the fields, or have other shapes.
        ValueError, or in a graph tf.errors.InvalidArgumentError: an example has no choices, or a
            label is not the index of one.
    """

    field_counts = (2, 3)
    field_purpose = "a context, an optional question, and choices"

    def __init__(
        self,
        tokenizer: GPT1Tokenizer,
        sequence_length: int = 512,
        fields: Sequence[str] = ("context", "question", "choices"),
        truncate: str = ROUND_ROBIN,
        **kwargs: Any,
    ) -> None:
        super().__init__(fields, truncate, **kwargs)
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length

    def frame(self, segments: list[Any]) -> tuple[Any, Any]:
        """See `FieldsPreprocessor.frame`; returns what `frame_choices` returns."""
        return text_backend().frame_choices(
            segments, self.tokenizer, self.sequence_length, self.truncate
        )

    def check_labels(self, texts: dict[str, Any], y: Any) -> None:
        text_backend().check_choices(texts[self.fields[-1]], y)

    def pad(self, framed: Any, pad_to: PadTo = "bucket") -> dict[str, Any]:
        """See `FieldsPreprocessor.pad`; returns what `pad_choices` returns."""
        return text_backend().pad_choices(framed, self.tokenizer, self.sequence_length, pad_to)

    def count_tokens(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.reduce_sum(tf.cast(inputs["branches"] >= 0, tf.int32), axis=-1)

    def as_tensors(self, x: Any) -> dict[str, Any]:
        """See `FieldsPreprocessor.as_tensors`; choices are ragged, `[batch, None]`."""
        backend, texts = text_backend(), self.by_field(x)
        *names, choices = self.fields
        tensors = {name: backend.as_texts(texts[name]) for name in names}
        tensors[choices] = backend.as_choices(texts[choices])
        ranks = {name: backend.rank(tensor) for name, tensor in tensors.items()}
        if list(ranks.values()) != [1] * len(names) + [2]:
            raise ValueError(
                "Expected strings of shapes [batch], and [batch, choices] for the choices; or "
                f"without `batch`. Received ranks: {ranks}."
            )
        return tensors

    def by_field(self, x: Any) -> dict[str, Any]:
        return super().by_field(tuple(x) if isinstance(x, list) else x)

    def for_slicing(self, x: Any) -> dict[str, Any]:
        # Nested lists of different lengths cannot become an array.
        return text_backend().for_slicing(self.as_batch(x))

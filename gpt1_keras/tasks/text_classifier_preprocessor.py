"""GPT1TextClassifierPreprocessor: raw strings to the classifier's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import keras

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tokenization.input_transformations import frame, pad
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextClassifierPreprocessor(FieldsPreprocessor):
    """Tokenizes, frames, truncates and pads one text or a pair of texts.

    Args:
        tokenizer: `GPT1Tokenizer`.
        sequence_length: the most tokens, special tokens included. Batches are padded to the
            smallest of the lengths 16, 24, 32, 48, ... that holds them.
        fields: names of the texts: `("text",)`, or two such as `("premise", "hypothesis")`.
            Exports name their inputs so.

    Call arguments:
        x: strings `[batch]`; for a pair, a tuple of two, or a dict by field.
        y: labels, passed through.
        sample_weight: passed through.

    Returns:
        `{"token_ids": int32 [batch, length], "padding_mask": int32 [batch, length]}`; with `y`, a
        tuple as Keras's `fit` takes it.

    Raises:
        ValueError: the texts do not match the fields, or are not batches of strings.
    """

    field_counts: ClassVar[tuple[int, ...]] = (1, 2)
    field_purpose = "one text or for a pair"

    def __init__(
        self,
        tokenizer: GPT1Tokenizer,
        sequence_length: int = 512,
        fields: Sequence[str] = ("text",),
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, fields, **kwargs)

    def transform(self, texts: list[tf.Tensor]) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """As `FieldsPreprocessor.transform`; the ids, int32 `[batch, None]`, as of `frame`."""
        segments = self.tokenizer.tokenize_each(texts)
        return frame(segments, self.tokenizer, self.sequence_length)

    def pad(self, framed: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        """Pads what `transform` returns to the model's inputs, int32 `[batch, bucket]`."""
        return pad(framed, self.tokenizer, self.sequence_length)

    def count_tokens(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.reduce_sum(inputs["padding_mask"], axis=-1)

    def as_tensors(self, x: Any) -> dict[str, tf.Tensor]:
        texts = {
            field: tf.convert_to_tensor(text, tf.string) for field, text in self.by_field(x).items()
        }
        if any(text.shape.rank != 1 for text in texts.values()):
            raise ValueError(
                "Expected batches of strings, of shape [batch]. Received shapes: "
                f"{[tuple(text.shape) for text in texts.values()]}."
            )
        return texts

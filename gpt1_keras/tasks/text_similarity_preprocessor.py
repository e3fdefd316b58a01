"""GPT1TextSimilarityPreprocessor: pairs of raw strings to the similarity task's inputs."""

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
class GPT1TextSimilarityPreprocessor(FieldsPreprocessor, keras_hub.models.Preprocessor):
    """Tokenizes, frames, truncates and pads pairs of texts in both orders.

    Args:
        tokenizer, sequence_length, truncate: as in `GPT1TextClassifierPreprocessor`.
        fields: names of the two texts.

    Call arguments:
        x: a tuple of two string batches `[batch]`, or of two strings; or a dict by field.
        y, sample_weight, pad_to: as in `GPT1TextClassifierPreprocessor`.

    Returns:
        `{"token_ids": int32 [batch, 2, length], "padding_mask": int32 [batch, 2, length]}`, without
        `batch` for one pair; with `y`, a tuple for Keras's `fit`.
    """

    field_counts = (2,)
    field_purpose = "a pair of texts"

    def __init__(
        self,
        tokenizer: GPT1Tokenizer,
        sequence_length: int = 512,
        fields: Sequence[str] = ("text1", "text2"),
        truncate: str = ROUND_ROBIN,
        **kwargs: Any,
    ) -> None:
        super().__init__(fields, truncate, **kwargs)
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length

    def frame(self, segments: list[Any]) -> tuple[Any, Any]:
        """Frames both orders of each pair; see `FieldsPreprocessor.frame`.

        Returns `(ids, truncated)`: int32 `[2 batch, None]`, the orders in turn; and bool `[batch]`.
        """
        first, truncated = super().frame(segments)
        second, _ = super().frame(segments[::-1])
        return text_backend().interleave(first, second), truncated

    def pad(self, framed: Any, pad_to: PadTo = "bucket") -> dict[str, Any]:
        """Returns int32 `[batch, 2, length]`; see `FieldsPreprocessor.pad`."""
        padded = super().pad(framed, pad_to)
        return {name: text_backend().as_pairs(rows) for name, rows in padded.items()}

    def count_tokens(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the number of tokens of each pair in one of its orders, int32 `[batch]`."""
        return tf.reduce_sum(inputs["padding_mask"][:, 0], axis=-1)

"""GPT1TextSimilarityPreprocessor: pairs of raw strings to the similarity task's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tasks.text_classifier_preprocessor import GPT1TextClassifierPreprocessor
from gpt1_keras.tokenization.input_transformations import frame
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextSimilarityPreprocessor(GPT1TextClassifierPreprocessor):
    """Tokenizes, frames, truncates and pads pairs of texts in both orders.

    Args:
        tokenizer, sequence_length: as in `GPT1TextClassifierPreprocessor`.
        fields: names of the two texts.

    Call arguments:
        x: a tuple of two string batches `[batch]`, or a dict by field.
        y, sample_weight: passed through.

    Returns:
        `{"token_ids": int32 [batch, 2, length], "padding_mask": int32 [batch, 2, length]}`; with
        `y`, a tuple as Keras's `fit` takes it.
    """

    field_counts = (2,)
    field_purpose = "a pair of texts"

    def __init__(
        self,
        tokenizer: GPT1Tokenizer,
        sequence_length: int = 512,
        fields: Sequence[str] = ("text1", "text2"),
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, fields, **kwargs)

    def transform(self, texts: list[tf.Tensor]) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """As `FieldsPreprocessor.transform`.

        Returns:
            `(ids, truncated)`: int32 `[2 batch, None]`, the two orders of each pair in turn; and
            bool `[batch]`.
        """
        segments = self.tokenizer.tokenize_each(texts)
        first, truncated = frame(segments, self.tokenizer, self.sequence_length)
        second, _ = frame(segments[::-1], self.tokenizer, self.sequence_length)
        batch = first.nrows()
        in_turn = tf.reshape(tf.stack([tf.range(batch), batch + tf.range(batch)], axis=1), [-1])
        return tf.gather(tf.concat([first, second], axis=0), in_turn), truncated

    def pad(self, framed: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        """Pads what `transform` returns to the model's inputs, int32 `[batch, 2, bucket]`."""
        return {
            name: tf.reshape(tensor, [-1, 2, tf.shape(tensor)[1]])
            for name, tensor in super().pad(framed).items()
        }

    def count_tokens(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """The number of tokens of each pair in one of its orders, int32 `[batch]`."""
        return tf.reduce_sum(inputs["padding_mask"][:, 0], axis=-1)

"""Pairs of raw strings to the similarity task's inputs."""

import keras

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tasks.text_classifier_preprocessor import GPT1TextClassifierPreprocessor
from gpt1_keras.tokenization.input_transformations import frame


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

    def __init__(self, tokenizer, sequence_length=512, fields=("text1", "text2"), **kwargs):
        super().__init__(tokenizer, sequence_length, fields, **kwargs)
        if len(self.fields) != 2:
            raise ValueError(f"Expected fields for a pair of texts. Received: {fields}.")

    def transform(self, texts):
        """Tokenizes and frames.

        Args:
            texts: list of two string tensors `[batch]`.

        Returns:
            `(ids, truncated)`: ragged int32 `[2 batch, None]`, each pair's two orders one behind
            the other; bool `[batch]`, whether a text was cut.
        """
        segments = self.tokenizer.tokenize_each(texts)
        first, truncated = frame(segments, self.tokenizer, self.sequence_length)
        second, _ = frame(segments[::-1], self.tokenizer, self.sequence_length)
        rows = first.nrows()
        in_turn = tf.reshape(tf.stack([tf.range(rows), rows + tf.range(rows)], axis=1), [-1])
        return tf.gather(tf.concat([first, second], axis=0), in_turn), truncated

    def pad(self, ids):
        """Pads what `transform` gives, to int32 `[batch, 2, bucket]`."""
        return {
            name: tf.reshape(tensor, [-1, 2, tf.shape(tensor)[1]])
            for name, tensor in super().pad(ids).items()
        }

    def count_tokens(self, inputs):
        """How many tokens each pair has in one of its orders, int32 `[batch]`."""
        return tf.reduce_sum(inputs["padding_mask"][:, 0], axis=-1)

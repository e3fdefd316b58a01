"""Raw strings to the classifier's inputs."""

import keras
import keras_hub

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tokenization.input_transformations import frame, pad
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextClassifierPreprocessor(keras_hub.models.Preprocessor):
    """Tokenizes, frames, truncates and pads one text or a pair of texts.

    It runs in eager mode, in `tf.data` and in a SavedModel.

    Args:
        tokenizer: `GPT1Tokenizer`.
        sequence_length: int, the most tokens, special ones included. Batches are padded to the
            smallest of the lengths 16, 24, 32, 48, ... that holds them.
        fields: names of the texts: `("text",)`, or two such as `("premise", "hypothesis")`.
            Exports name their inputs so.

    Call arguments:
        x: strings `[batch]`; for a pair, a tuple of two, or a dict by field.
        y: labels, passed through.
        sample_weight: passed through.

    Returns:
        `{"token_ids": int32 [batch, length], "padding_mask": int32 [batch, length]}`; with `y`,
        a tuple as Keras's `fit` takes it.

    Raises:
        ValueError: texts that are not as many as the fields, or not batches of strings.
    """

    backbone_cls = GPT1Backbone
    tokenizer_cls = GPT1Tokenizer

    def __init__(self, tokenizer, sequence_length=512, fields=("text",), **kwargs):
        super().__init__(**kwargs)
        if len(fields) not in (1, 2) or len(set(fields)) != len(fields):
            raise ValueError(f"Expected fields for one text or for a pair. Received: {fields}.")
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.fields = tuple(fields)
        self.built = True
        if len(fields) == 2:
            # KerasHub would take a tuple for texts and labels; here it is a pair of texts.
            self._call_accepts_labels = False

    def transform(self, texts):
        """Tokenizes and frames.

        Args:
            texts: list of string tensors `[batch]`, one for each field.

        Returns:
            `(ids, truncated)`, as `transforms.frame` gives them.
        """
        segments = self.tokenizer.tokenize_each(texts)
        return frame(segments, self.tokenizer, self.sequence_length)

    def pad(self, ids):
        """Pads what `transform` gives, to the model's inputs: as `transforms.pad`."""
        return pad(ids, self.tokenizer, self.sequence_length)

    def count_tokens(self, inputs):
        """How many tokens each of the model's inputs has, int32 `[batch]`."""
        return tf.reduce_sum(inputs["padding_mask"], axis=-1)

    def call(self, x, y=None, sample_weight=None):
        ids, _ = self.transform(list(self.as_tensors(x).values()))
        return keras.utils.pack_x_y_sample_weight(self.pad(ids), y, sample_weight)

    def as_tensors(self, x):
        """The texts as a dict of string tensors `[batch]` by field.

        Raises:
            ValueError: texts that are not as many as the fields, or not of this shape.
        """
        if isinstance(x, dict):
            if set(x) != set(self.fields):
                raise ValueError(f"Expected the fields {self.fields}. Received: {sorted(x)}.")
            x = tuple(x[field] for field in self.fields)
        elif not isinstance(x, tuple):
            x = (x,)
        if len(x) != len(self.fields):
            raise ValueError(
                f"Expected {len(self.fields)} texts, for {self.fields}. Received: {len(x)}."
            )
        texts = [tf.convert_to_tensor(text, tf.string) for text in x]
        if any(text.shape.rank != 1 for text in texts):
            raise ValueError(
                "Expected batches of strings, of shape [batch]. Received shapes: "
                f"{[tuple(text.shape) for text in texts]}."
            )
        return dict(zip(self.fields, texts))

    def get_config(self):
        return {
            **super().get_config(),
            "sequence_length": self.sequence_length,
            "fields": self.fields,
        }

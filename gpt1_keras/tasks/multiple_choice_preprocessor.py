"""Raw strings to the multiple-choice task's inputs."""

import keras
import keras_hub

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tokenization.input_transformations import frame_choices, pad_choices
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1MultipleChoicePreprocessor(keras_hub.models.Preprocessor):
    """Tokenizes, frames, truncates and pads contexts, questions and their answers.

    Args:
        tokenizer: `GPT1Tokenizer`.
        sequence_length: int, the most tokens of context, question and one answer, special ones
            included.
        fields: names of the context, optionally of the question, and of the answers.

    Call arguments:
        x: a tuple of strings, or a dict by field: context and question `[batch]`, and answers
            `[batch, choices]`; a ragged tensor or nested lists where examples differ in the number
            of their answers. In a dense tensor, an empty string is an answer that is not there.
        y: the numbers of the right answers, passed through.
        sample_weight: passed through.

    Returns:
        dict as `transforms.pad_choices` gives it; with `y`, a tuple as Keras's `fit` takes it.

    Raises:
        ValueError: texts that are not as many as the fields, or not of these shapes.
        tf.errors.InvalidArgumentError: an example without any answer.
    """

    backbone_cls = GPT1Backbone
    tokenizer_cls = GPT1Tokenizer

    def __init__(
        self,
        tokenizer,
        sequence_length=512,
        fields=("context", "question", "choices"),
        **kwargs,
    ):
        super().__init__(**kwargs)
        if len(fields) not in (2, 3) or len(set(fields)) != len(fields):
            raise ValueError(
                "Expected fields for a context, an optional question, and choices. "
                f"Received: {fields}."
            )
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.fields = tuple(fields)
        self.built = True
        # KerasHub would take a tuple for texts and labels; here it is the texts.
        self._call_accepts_labels = False

    def transform(self, texts):
        """Tokenizes and frames.

        Args:
            texts: list of string tensors, one for each field: `[batch]`, and for the answers ragged
                `[batch, None]`.

        Returns:
            `(tree, truncated)`, as `transforms.frame_choices` gives them.
        """
        *texts, choices = texts
        context, *question, answers = self.tokenizer.tokenize_each([*texts, choices.values])
        question = question[0] if question else context[:, :0]
        answers = choices.with_values(answers)
        return frame_choices(context, question, answers, self.tokenizer, self.sequence_length)

    def call(self, x, y=None, sample_weight=None):
        x = self.as_tensors(x)
        counts = x[self.fields[-1]].row_lengths()
        _check(counts > 0, "Every example needs an answer. Received numbers of answers:", counts)
        if y is not None:
            known = (tf.cast(y, tf.int64) >= 0) & (tf.cast(y, tf.int64) < counts)
            _check(known, "Labels must be numbers of answers, from 0. Received:", y)
        tree, _ = self.transform(list(x.values()))
        return keras.utils.pack_x_y_sample_weight(self.pad(tree), y, sample_weight)

    def pad(self, tree):
        """Pads what `transform` gives, to the model's inputs: as `transforms.pad_choices`."""
        return pad_choices(tree, self.tokenizer, self.sequence_length)

    def count_tokens(self, inputs):
        """How many tokens each example has, int32 `[batch]`."""
        return tf.reduce_sum(tf.cast(inputs["branches"] >= 0, tf.int32), axis=-1)

    def as_tensors(self, x):
        """The texts as a dict of tensors by field, the answers ragged `[batch, None]`.

        Raises:
            ValueError: texts that are not as many as the fields, or not of their shapes.
        """
        if not isinstance(x, dict):
            if len(x) != len(self.fields):
                raise ValueError(
                    f"Expected {len(self.fields)} texts, for {self.fields}. Received: {len(x)}."
                )
            x = dict(zip(self.fields, x))
        if set(x) != set(self.fields):
            raise ValueError(f"Expected the fields {self.fields}. Received: {sorted(x)}.")
        *names, choices = self.fields
        x = {
            **{name: tf.convert_to_tensor(x[name], tf.string) for name in names},
            choices: _present(x[choices]),
        }
        ranks = [tensor.shape.rank for tensor in x.values()]
        if ranks != [1] * len(names) + [2]:
            raise ValueError(
                "Expected strings of shapes [batch], and [batch, choices] for the answers. "
                f"Received ranks: {dict(zip(x, ranks))}."
            )
        return x

    def get_config(self):
        return {
            **super().get_config(),
            "sequence_length": self.sequence_length,
            "fields": self.fields,
        }


def _present(choices):
    """The answers that are there, ragged `[batch, None]`."""
    if isinstance(choices, (list, tuple)):
        choices = tf.ragged.constant(choices, dtype=tf.string)
    if isinstance(choices, tf.RaggedTensor):
        return choices
    choices = tf.convert_to_tensor(choices, tf.string)
    if choices.shape.rank != 2:
        return choices
    is_there = choices != ""
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(choices, is_there),
        tf.reduce_sum(tf.cast(is_there, tf.int64), axis=1),
        validate=False,
    )


def _check(are_right, message, values):
    tf.debugging.Assert(tf.reduce_all(are_right), [message, values])

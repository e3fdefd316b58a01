"""The texts of multiple choice, whose examples differ in their number of choices."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from gpt1_keras.tasks.task import Task
from gpt1_keras.tokenization.input_transformations import second_limit
from serving.export.batching import merged
from serving.export.export_options import Batching
from serving.export.signature import Tensors, full_stops
from serving.export.text_inputs import (
    Condition,
    TextInputs,
    asserted,
    at_most,
    attention_cost,
    in_range,
    same_shapes,
)

# An example with all its choices may have as many tokens as this number of sequences: attention's
# memory grows with the square of its length.
_MAX_SEQUENCES = 8
# All choices of a request may cost as much as the tokens of this number of sequences: the most rows
# that the server accepts.
_MAX_REQUEST_SEQUENCES = 256
_LENGTHS = "lengths"  # the name of the joined choices' lengths


class ChoiceInputs(TextInputs):
    """The inputs of multiple choice: like `TextInputs`, but the last field is `[batch, choices]`.

    In a dense tensor, empty strings after an example's last choice are no choices.
    """

    def __init__(self, model: Task) -> None:
        super().__init__(model)
        self._field = model.preprocessor.fields[-1]

    def specs(self) -> dict[str, tf.TensorSpec]:
        choices = tf.TensorSpec([None, None], tf.string, self._field)
        return {**super().specs(), self._field: choices}

    def bucket_lengths(self) -> list[int]:
        lengths = super().bucket_lengths()
        # A long context with several choices often has more tokens than one sequence.
        return [*lengths, 2 * lengths[-1]]

    def example(self, length: int) -> Tensors:
        *others, choices = self._preprocessor.fields
        choice = max(1, length // 8 - 2)
        context = length - 4 * (choice + 2) - len(others)
        texts = dict.fromkeys(others, tf.constant([full_stops(1)]))
        texts[others[0]] = tf.constant([full_stops(context)])
        return {**texts, choices: tf.constant([[full_stops(choice)] * 4])}

    def prepare(self, texts: Tensors) -> Tensors:
        """Returns the texts, with choices as a ragged tensor, at least one for each example."""
        texts = self._preprocessor.as_tensors(texts)
        choices = texts[self._field]
        count = choices.row_lengths()
        # Before requests are merged, only the bytes are known. A text rarely has more tokens than
        # bytes.
        limit = second_limit(0, self.sequence_length, self._preprocessor.truncate)
        tokens = 2 + tf.minimum(tf.strings.length(choices.values), limit)
        total = tf.math.unsorted_segment_sum(tokens, choices.value_rowids(), choices.nrows())
        values = asserted(
            {self._field: choices.values},
            (count > 0, "Every example needs a choice.", count),
            at_most("tokens of all choices", total, (_MAX_SEQUENCES - 1) * self.sequence_length),
            self._affordable(total),
        )
        return {**texts, self._field: choices.with_values(values[self._field])}

    def _affordable(self, tokens: tf.Tensor) -> Condition:
        """Returns the condition that a request can be read, from its examples' choices' tokens."""
        return at_most(
            "tokens of the choices of a request, where those of an example that are longer than a "
            f"sequence, n > {self.sequence_length}, count as n * n / {self.sequence_length}",
            tf.reduce_sum(attention_cost(tokens, self.sequence_length)),
            _MAX_REQUEST_SEQUENCES * self.sequence_length,
        )

    def finish(self, texts: Tensors, outputs: Tensors) -> Tensors:
        """Returns the outputs with `label`, the best choice's text."""
        choices = self.dense_choices(texts)
        label = tf.gather(choices, outputs["choice"], batch_dims=1)
        # If the request was merged with others of more choices, scores have columns for these.
        scores = outputs["scores"][:, : tf.shape(choices)[1]]
        return {**outputs, "scores": scores, "label": label}

    def dense_choices(self, texts: Tensors) -> tf.Tensor:
        """Returns the choices of prepared texts, string `[batch, choices]`."""
        return texts[self._field].to_tensor("")

    def blank(self, segments: list[Any]) -> tf.Tensor:
        """Returns whether an example's choice, or what comes before all of them, has no token."""
        *prefix, choices = segments
        # The context and the question are one text, of which either may be missing.
        has_prefix = tf.add_n([ids.row_lengths() for ids in prefix]) > 0
        is_blank = tf.cast(choices.values.row_lengths() == 0, tf.int32)
        count = tf.math.unsorted_segment_sum(is_blank, choices.value_rowids(), choices.nrows())
        return ~has_prefix | (count > 0)

    def pad(self, framed: Any) -> Tensors:
        inputs = super().pad(framed)
        indices = inputs["extract_indices"]
        # The model needs at least one column, and a batch without examples has none.
        missing = tf.maximum(1 - tf.shape(indices)[1], 0)
        padded = tf.pad(indices, [[0, 0], [0, missing]], constant_values=-1)
        return {**inputs, "extract_indices": padded}

    def conditions(self, inputs: Tensors) -> list[Condition]:
        ids, positions, branches, extract_indices = (
            inputs[name] for name in ("token_ids", "positions", "branches", "extract_indices")
        )
        rows, length = tf.unstack(tf.shape(ids))
        has_shape = same_shapes(ids, positions, branches) & (tf.shape(extract_indices)[0] == rows)
        are_indices = tf.reduce_all((extract_indices >= -1) & (extract_indices < length))
        # At most the choices' tokens, as the shared prefix is not longer than a sequence.
        beyond = tf.reduce_max(extract_indices, axis=-1) + 1 - self.sequence_length
        return [
            in_range("token_ids", ids, self._vocabulary_size),
            in_range("positions", positions, self.sequence_length),
            at_most("columns of token_ids", length, _MAX_SEQUENCES * self.sequence_length),
            self._affordable(tf.maximum(beyond, 0)),
            (has_shape, "Expected inputs of the shape of token_ids.", tf.shape(ids)),
            (branches >= -1, "Expected branches from -1.", tf.reduce_min(branches)),
            (
                are_indices & tf.reduce_all(tf.reduce_any(extract_indices >= 0, axis=1)),
                "Expected extract_indices to be columns of token_ids, at least one, or -1.",
                extract_indices,
            ),
        ]

    def merged(self, answer: Callable[..., Tensors], batching: Batching) -> Callable[..., Tensors]:
        """Like `TextInputs.merged`, but choices and scores pass through the queue as strings.

        Tensors of merged requests may differ only in their batch, but requests differ in their
        number of choices. And if a request is split, its parts' scores have different numbers of
        columns.
        """

        def answer_joined(**joined: tf.Tensor) -> Tensors:
            outputs = answer(**self._split(**joined))
            # Nine digits tell any two float32 numbers apart.
            digits = tf.strings.as_string(outputs["scores"], precision=8, scientific=True)
            return {**outputs, "scores": tf.strings.reduce_join(digits, axis=1, separator=" ")}

        call = merged(answer_joined, (*self._preprocessor.fields, _LENGTHS), batching)

        def answer_merged(**texts: Any) -> Tensors:
            outputs = call(**self._join(texts))
            scores = tf.strings.to_number(tf.strings.split(outputs["scores"])).to_tensor()
            return {**outputs, "scores": scores}

        return answer_merged

    def _join(self, texts: Tensors) -> Tensors:
        """Returns the texts, each example's choices joined to one string, and their lengths."""
        choices = texts[self._field]
        lengths = choices.with_values(tf.strings.as_string(tf.strings.length(choices.values)))
        return {
            **texts,
            self._field: tf.strings.reduce_join(choices, axis=-1),
            _LENGTHS: tf.strings.reduce_join(lengths, axis=-1, separator=" "),
        }

    def _split(self, **joined: tf.Tensor) -> Tensors:
        """Returns the texts that `_join` joined."""
        lengths = tf.strings.split(joined.pop(_LENGTHS))
        lengths = lengths.with_values(tf.strings.to_number(lengths.values, tf.int32))
        of_example = tf.gather(joined[self._field], lengths.value_rowids())
        starts = tf.cumsum(lengths.values, exclusive=True)
        starts -= tf.gather(starts, tf.gather(lengths.row_splits, lengths.value_rowids()))
        choices = tf.strings.substr(of_example, starts, lengths.values)
        return {**joined, self._field: lengths.with_values(choices)}

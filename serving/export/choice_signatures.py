"""The signatures of a multiple-choice task's export."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from gpt1_keras.tasks.base import RawTextTask
from gpt1_keras.tokenization.input_transformations import segment_limit
from serving.export.batching import Batching
from serving.export.confidence import calibrated_logits, confidence_of
from serving.export.decoder.int8_block import Int8Block
from serving.export.explanations.log_odds import log_odds
from serving.export.signatures import Condition, at_most, checked, in_range, same_shapes, words
from serving.export.task_signatures import TaskSignatures, Tensors
from serving.layout import CLASSIFY

# An example with all its choices is at most as long as so many sequences: attention's memory grows
# with the square of it.
_MAX_SEQUENCES = 8
_LENGTHS = "lengths"  # the name of the joined choices' lengths


class ChoiceSignatures(TaskSignatures):
    """Of multiple choice.

    Examples may differ in the number of their `choices`: in a dense tensor, an empty string is not
    a choice. Outputs are `label`, string `[batch]`, the best choice; `choice`, int32 `[batch]`, its
    index; and `scores`, float `[batch, choices]`, probabilities, 0 where there is no choice. Where
    the model has a threshold, also `is_sure`, bool `[batch]`. From tokens there is no `label`.
    """

    def __init__(
        self,
        model: RawTextTask,
        batching: Batching | None = None,
        int8: bool = False,
        blocks: Sequence[Int8Block] | None = None,
    ) -> None:
        super().__init__(model, batching, int8, blocks)
        self._field = self._preprocessor.fields[-1]

    def bucket_lengths(self) -> list[int]:
        lengths = super().bucket_lengths()
        # Several choices after a long context are often longer than the longest sequence.
        return [*lengths, 2 * lengths[-1]]

    def sample(self, length: int) -> dict[str, tf.Tensor]:
        *others, choices = self._preprocessor.fields
        choice = max(1, length // 8 - 2)
        context = length - 4 * (choice + 2) - len(others)
        texts = dict.fromkeys(others, tf.constant([words(1)]))
        texts[others[0]] = tf.constant([words(context)])
        return {**texts, choices: tf.constant([[words(choice)] * 4])}

    def text_spec(self, field: str) -> tf.TensorSpec:
        is_choices = field == self._field
        return tf.TensorSpec([None, None] if is_choices else [None], tf.string, field)

    def example_functions(self) -> dict[str, Callable[[tf.Tensor], Tensors]]:
        return {CLASSIFY: self._classify}

    def token_conditions(self, inputs: Tensors) -> list[Condition]:
        ids, positions, branches, extract_indices = (
            inputs[name] for name in ("token_ids", "positions", "branches", "extract_indices")
        )
        rows, length = tf.unstack(tf.shape(ids))
        has_shape = same_shapes(ids, positions, branches) & (tf.shape(extract_indices)[0] == rows)
        are_indices = tf.reduce_all((extract_indices >= -1) & (extract_indices < length))
        return [
            in_range("token_ids", ids, self._model.backbone.vocabulary_size),
            in_range("positions", positions, self.sequence_length),
            at_most("columns of token_ids", length, _MAX_SEQUENCES * self.sequence_length),
            (has_shape, "Expected inputs of the shape of token_ids.", tf.shape(ids)),
            (branches >= -1, "Expected branches from -1.", tf.reduce_min(branches)),
            (
                are_indices & tf.reduce_all(tf.reduce_any(extract_indices >= 0, axis=1)),
                "Expected extract_indices to be columns of token_ids, at least one, or -1.",
                extract_indices,
            ),
        ]

    def outputs(self, answers: tf.Tensor) -> Tensors:
        confidence = confidence_of(self._model, answers)
        choice = tf.argmax(confidence["scores"], axis=-1, output_type=tf.int32)
        return {"choice": choice, **confidence}

    def explained(self, answers: tf.Tensor, answer: tf.Tensor) -> tf.Tensor:
        """The log-odds of a choice."""
        return log_odds(calibrated_logits(self._model, answers), answer)

    def _explain(self, **texts: Any) -> Tensors:
        texts = self._with_present_choices(texts)
        outputs = super()._explain(**texts)
        choices = texts[self._field].to_tensor("")
        return {**outputs, "label": tf.gather(choices, outputs["choice"], batch_dims=1)}

    def _merged(
        self, from_tokens: Callable[..., Tensors], batching: Batching
    ) -> Callable[..., Tensors]:
        """As of other tasks.

        A batch has as many columns of scores as one of its examples has choices, and a request that
        is split gets rows of several batches; so scores leave them as strings.
        """

        def predict(**inputs: tf.Tensor) -> Tensors:
            outputs = from_tokens(**inputs)
            # Nine digits are a float32, whichever it is.
            digits = tf.strings.as_string(outputs["scores"], precision=8, scientific=True)
            return {**outputs, "scores": tf.strings.reduce_join(digits, axis=1, separator=" ")}

        call = super()._merged(predict, batching)

        def answer(**texts: Any) -> Tensors:
            outputs = call(**texts)
            scores = tf.strings.to_number(tf.strings.split(outputs["scores"])).to_tensor()
            return {**outputs, "scores": scores}

        return answer

    def _predict(self, **texts: Any) -> Tensors:
        texts = self._with_present_choices(texts)
        choices = texts[self._field].to_tensor("")
        outputs = super()._predict(**texts)
        # Merged with requests of more choices, it has columns for them.
        outputs["scores"] = outputs["scores"][:, : tf.shape(choices)[1]]
        label = tf.gather(choices, outputs["choice"], batch_dims=1)
        return {**outputs, "label": label}

    def _classify(self, inputs: tf.Tensor) -> Tensors:
        texts = self._with_present_choices(self._parse(inputs))
        scores = self._predict(**texts)["scores"]
        return {"classes": texts[self._field].to_tensor(""), "scores": scores}

    def pad(self, framed: Any) -> Tensors:
        inputs = super().pad(framed)
        indices = inputs["extract_indices"]
        # Of no example, they have no column, which the model does not take.
        missing = tf.maximum(1 - tf.shape(indices)[1], 0)
        padded = tf.pad(indices, [[0, 0], [0, missing]], constant_values=-1)
        return {**inputs, "extract_indices": padded}

    def _with_present_choices(self, texts: Any) -> Tensors:
        """The texts, with a ragged tensor of the choices that are present, at least one each."""
        texts = self._preprocessor.as_tensors(texts)
        choices = texts[self._field]
        count = choices.row_lengths()
        # A text has hardly more tokens than bytes. Before requests are merged, nothing else is
        # known of them.
        limit = segment_limit(2, self.sequence_length)
        tokens = 2 + tf.minimum(tf.strings.length(choices.values), limit)
        total = tf.math.unsorted_segment_sum(tokens, choices.value_rowids(), choices.nrows())
        values = checked(
            {self._field: choices.values},
            (count > 0, "Every example needs a choice.", count),
            at_most("tokens of all choices", total, (_MAX_SEQUENCES - 1) * self.sequence_length),
        )
        return {**texts, self._field: choices.with_values(values[self._field])}

    def _joined_names(self) -> Sequence[str]:
        return (*self._preprocessor.fields, _LENGTHS)

    def _join(self, texts: Tensors) -> Tensors:
        """Texts whose choices are one string for each example, and the choices' lengths in bytes.

        Tensors of requests that are merged may only differ in their batch.
        """
        choices = texts[self._field]
        lengths = choices.with_values(tf.strings.as_string(tf.strings.length(choices.values)))
        return {
            **texts,
            self._field: tf.strings.reduce_join(choices, axis=-1),
            _LENGTHS: tf.strings.reduce_join(lengths, axis=-1, separator=" "),
        }

    def _split(self, **joined: tf.Tensor) -> Tensors:
        lengths = tf.strings.split(joined.pop(_LENGTHS))
        lengths = lengths.with_values(tf.strings.to_number(lengths.values, tf.int32))
        of_example = tf.gather(joined[self._field], lengths.value_rowids())
        starts = tf.cumsum(lengths.values, exclusive=True)
        starts -= tf.gather(starts, tf.gather(lengths.row_splits, lengths.value_rowids()))
        choices = tf.strings.substr(of_example, starts, lengths.values)
        return {**joined, self._field: lengths.with_values(choices)}

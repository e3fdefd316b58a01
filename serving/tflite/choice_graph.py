"""The graph of multiple choice."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from serving.tflite.byte_tokenizer import TokenizedTexts
from serving.tflite.device_graph import INT, Specs, Tensors
from serving.tflite.task_graphs import TaskGraph

_HIDDEN = 1e9  # what the logit of an absent choice loses


class ChoiceGraph(TaskGraph):
    """Of multiple choice, with a fixed number of choices.

    The last field is int32 `[choices, max_bytes]`; a choice without any byte is absent. Answers
    are `scores`, float `[choices]`: probabilities, 0 for absent choices; and where the model has a
    threshold `is_sure`, int32 `[1]`. The model reads what
    `gpt1_keras.tokenization.input_transformations.pad_choices` returns, int32 `[1, length]` and
    `[1, choices]`.
    """

    has_choices = True

    def _lengths(self) -> list[int]:
        *lengths, of_choices = super()._lengths()
        return lengths + [of_choices] * self._num_choices

    def _text_specs(self) -> Specs:
        *others, (field, size) = self._max_bytes.items()
        specs = {name: tf.TensorSpec([size], INT) for name, size in others}
        return {**specs, field: tf.TensorSpec([self._num_choices, size], INT)}

    def _token_specs(self) -> Specs:
        length = self._framer.tree_length(self._num_choices)
        specs = dict.fromkeys(
            ("token_ids", "positions", "branches"), tf.TensorSpec([1, length], INT)
        )
        return {**specs, "extract_indices": tf.TensorSpec([1, self._num_choices], INT)}

    def _split_texts(self, texts: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        *others, choices = super()._split_texts(texts)
        return others + tf.unstack(choices)

    def _frame(
        self, tokens: TokenizedTexts, texts: Sequence[tf.Tensor]
    ) -> tuple[Tensors, tf.Tensor, tf.Tensor]:
        is_present = tf.reduce_any(tf.stack(texts[-self._num_choices :]) != 0, axis=1)
        tree, num_tokens, truncated = self._framer.frame_choices(tokens, is_present)
        return {name: tensor[tf.newaxis] for name, tensor in tree.items()}, num_tokens, truncated

    def _answer(self, **inputs: tf.Tensor) -> Tensors:
        indices = inputs["extract_indices"]
        states = self._backbone.states_at(
            inputs["token_ids"], indices, inputs["positions"], inputs["branches"]
        )[0]
        is_present = tf.cast(indices >= 0, tf.float32)
        logits = self._head(states)[tf.newaxis, :, 0] + (is_present - 1.0) * _HIDDEN
        answers = self._confidence(logits)
        return {**answers, "scores": answers["scores"] * is_present[0]}

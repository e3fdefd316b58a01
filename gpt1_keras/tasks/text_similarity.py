"""GPT1TextSimilarity, and its preprocessor: two texts, compared in both orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import keras
import keras_hub
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tasks.heads import FRESH_ARGUMENTS, last_token_index, sequence_inputs
from gpt1_keras.tasks.label_heads import LABEL_ARGUMENTS, LabelHead, make_label_head
from gpt1_keras.tasks.task import Task
from gpt1_keras.tokenization.backend import text_backend
from gpt1_keras.tokenization.input_transformations import ROUND_ROBIN
from gpt1_keras.tokenization.padding import PadTo
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.types import TaskArguments, Tensor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextSimilarityPreprocessor(FieldsPreprocessor, keras_hub.models.Preprocessor):
    """Tokenizes, frames, truncates and pads pairs of texts in both orders.

    Args:
        tokenizer, sequence_length, truncate, tail: as in `GPT1TextClassifierPreprocessor`.
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
        tail: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(fields, truncate, tail, **kwargs)
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


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextSimilarity(Task, keras_hub.models.Task):
    """Classifies or scores pairs of texts that have no order (section 3.3).

    Each pair is read in both orders, and the linear layer is on the sum of the hidden states at the
    two extract tokens. `fit`, `evaluate` and `predict` take pairs of raw strings.

    With `score_range`, labels are scores, such as STS-B's from 0 to 5. The head has a logit for
    each integer of the range, `SoftLabelCrossEntropy` is the loss, and `predict` returns the
    expected score, float32 `[batch]`. This is a reconstruction, as the paper does not say how it
    predicts scores.

    Args:
        preprocessor: `GPT1TextSimilarityPreprocessor`; `None` if inputs are ids.
        score_range: two integers, the lowest and the highest score.
        dropout: rate of dropout on the sum of the hidden states at the extract tokens; 0.1 in the
            paper.

    All other arguments, and the errors, are as in `GPT1TextClassifier`.

    Example:
    ```python
    similarity = gpt1_keras.GPT1TextSimilarity.from_preset("path/to/preset", score_range=(0, 5))
    similarity.fit((["A man walks."], ["A man is walking."]), [4.8], epochs=3)
    similarity.predict((["A dog runs."], ["A cat sleeps."]))
    ```
    """

    backbone_cls = GPT1Backbone
    preprocessor_cls = GPT1TextSimilarityPreprocessor

    label_arguments = LABEL_ARGUMENTS
    fresh_arguments = FRESH_ARGUMENTS
    task_head: LabelHead

    def __init__(
        self,
        backbone: CausalBackbone,
        num_classes: int | None = None,
        preprocessor: GPT1TextSimilarityPreprocessor | None = None,
        *,
        class_names: Sequence[str] | None = None,
        score_range: tuple[int, int] | None = None,
        activation: str | Callable | None = None,
        dropout: float = 0.1,
        temperature: float = 1.0,
        sure_threshold: float | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        # === Layers ===
        head = make_label_head(
            *(num_classes, class_names, score_range, activation, dropout),
            *(temperature, sure_threshold, backbone.dtype_policy),
        )
        self.attach(backbone, preprocessor, head)

        # === Functional model ===
        inputs = sequence_inputs(2, None)
        outputs = head(_sum_of_orders(self.last_states(*map(_merge_orders, inputs.values()))))
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    def predict_outputs(
        self, inputs: dict[str, Tensor], states_at: Callable[..., Tensor] | None = None
    ) -> Tensor:
        token_ids, padding_mask = (
            _merge_orders(inputs[name]) for name in ("token_ids", "padding_mask")
        )
        states = (states_at or self.backbone.states_at)(token_ids, last_token_index(padding_mask))
        return self.task_head.outputs(_sum_of_orders(states[:, 0]))


def _merge_orders(x: Tensor) -> Tensor:
    """Merges both orders into one batch: `[batch, 2, length]` to `[2 batch, length]`."""
    return ops.concatenate([x[:, 0], x[:, 1]], axis=0)


def _sum_of_orders(states: Tensor) -> Tensor:
    """Sums over both orders: float `[2 batch, hidden_dim]` to `[batch, hidden_dim]`."""
    first, second = ops.split(states, 2, axis=0)
    return first + second

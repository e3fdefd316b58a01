"""GPT1TextClassifier, and its preprocessor: classes or scores of a text or a pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Unpack

import keras
import keras_hub

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.optimization.objective import sequence_weights
from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tasks.heads import FRESH_ARGUMENTS, last_token_index, sequence_inputs
from gpt1_keras.tasks.label_heads import LABEL_ARGUMENTS, LabelHead, make_label_head
from gpt1_keras.tasks.mean_of_windows import MeanOfWindows, WindowsAsRows, window_weights
from gpt1_keras.tasks.task import Task
from gpt1_keras.tokenization.backend import text_backend
from gpt1_keras.tokenization.input_transformations import ROUND_ROBIN
from gpt1_keras.tokenization.padding import PadTo
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.types import TaskArguments, Tensor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextClassifierPreprocessor(
    FieldsPreprocessor, keras_hub.models.TextClassifierPreprocessor
):
    """Tokenizes, frames, truncates and pads one text or a pair of texts.

    Args:
        tokenizer: `GPT1Tokenizer`.
        sequence_length: the most tokens of a sequence, special tokens included; the length that
            `pad_to="sequence_length"` pads to.
        fields: names of the texts: `("text",)`, or two, such as `("premise", "hypothesis")`.
            Exports use these names for their inputs.
        truncate: how a pair that is too long is truncated: `"round_robin"`, token by token in turn,
            so that one text gets what the other leaves, as in KerasHub; or `"halves"`, each text to
            half, as in the paper's released code. Presets of earlier versions, which do not name
            it, load with `"halves"`.
        tail: the share of its end in what is kept of a text that is too long: by default, 0.0, only
            its first tokens are kept; with 0.5, as many of its last ones.
        windows: the most windows that a text is cut into, for one text alone. A text that is too
            long for one sequence is read as up to this number of sequences, equal shares of it,
            and the classifier answers with the mean of their probabilities. Beyond, each share is
            truncated. Time and memory of a long text grow with the number of its windows.

    Call arguments:
        x: strings `[batch]`, a list, tuple, array, tensor or pandas column; or one string. For a
            pair, a tuple of two of them, or a dict by field.
        y, sample_weight: passed through.
        pad_to: `"sequence_length"`; `"bucket"`, the smallest of the lengths 16, 24, 32, 48, ...
            that holds the batch; or `"longest"`, the length of its longest sequence. Tasks and
            exports pad by the last two.

    Returns:
        `{"token_ids": int32 [batch, length], "padding_mask": int32 [batch, length]}`, without
        `batch` for one string; with `y`, a tuple for Keras's `fit`. With `windows` above 1, both
        are `[batch, windows, length]`, as `pad_windows` in `padding` returns them.

    Raises:
        ValueError: the texts do not match the fields, or are not strings; an unknown `truncate`;
            a `tail` that is no share; or `windows` below 1, or above 1 for a pair.
    """

    field_counts: ClassVar[tuple[int, ...]] = (1, 2)
    field_purpose = "one text or for a pair"

    def __init__(
        self,
        tokenizer: GPT1Tokenizer,
        sequence_length: int = 512,
        fields: Sequence[str] = ("text",),
        truncate: str = ROUND_ROBIN,
        tail: float = 0.0,
        windows: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            fields, truncate, tail, tokenizer=tokenizer, sequence_length=sequence_length, **kwargs
        )
        if not isinstance(windows, int) or windows < 1:
            raise ValueError(f"windows must be a whole number from 1. Received: {windows!r}.")
        if windows > 1 and len(fields) > 1:
            raise ValueError(
                f"Only a single text is cut into windows. Received: windows={windows} for the "
                f"fields {self.fields}."
            )
        self.windows = windows

    def frame(self, segments: list[Any]) -> tuple[Any, Any]:
        """See `FieldsPreprocessor.frame`; with windows, returns what `frame_windows` returns."""
        if self.windows == 1:
            return super().frame(segments)
        return text_backend().frame_windows(
            segments[0], self.tokenizer, self.sequence_length, self.tail, self.windows
        )

    def pad(self, framed: Any, pad_to: PadTo = "bucket") -> dict[str, Any]:
        """See `FieldsPreprocessor.pad`; with windows, returns what `pad_windows` returns."""
        if self.windows == 1:
            return super().pad(framed, pad_to)
        return text_backend().pad_windows(
            framed, self.tokenizer, self.sequence_length, self.windows, pad_to
        )

    def count_tokens(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns each example's number of tokens, int32 `[batch]`, in all of its windows."""
        counts = super().count_tokens(inputs)
        return counts if self.windows == 1 else tf.reduce_sum(counts, axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "windows": self.windows}


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextClassifier(Task, keras_hub.models.TextClassifier):
    """Classifies texts, or pairs of texts as in entailment (sections 3.2 and 3.3).

    The head is a linear layer on the hidden state at the extract token. `fit`, `evaluate` and
    `predict` take raw strings, one text or a pair, by the preprocessor's `fields`. Labels are names
    of classes; or numbers, which are names too where any class has a number or a bool for its name,
    and otherwise indices from 0. `predict` returns float32 `[batch, classes]`, a column for each of
    `class_names` in their order, logits unless there is an `activation`.

    Args:
        backbone: `GPT1Backbone` or `LSTMBackbone`.
        num_classes: the number of classes, or 1 for a single output such as a sigmoid's. Give
            `class_names` or `score_range` instead to name the classes or to predict scores.
        preprocessor: `GPT1TextClassifierPreprocessor`; `None` if inputs are ids.
        class_names: the names of the classes, which presets and exports keep.
        score_range: two integers, the lowest and the highest score, for regression as in
            `GPT1TextSimilarity`.
        activation: the function on the logits. `None` returns logits, `"softmax"` probabilities,
            `"sigmoid"` the probability of each class by itself: of a single class, or of several
            labels of a text, for a loss such as `keras.losses.BinaryCrossentropy()`.
        dropout: rate of dropout on the hidden state at the extract token; 0.1 in the paper.
        temperature: divides logits before `probabilities`, and the scores of exports, are computed;
            see `Calibration`. `gpt1 calibrate` finds it.
        sure_threshold: the least probability at which an export calls its answer sure.

    Raises:
        ValueError: not exactly one of classes and scores is given, or `num_classes` and
            `class_names` differ.

    Example:
    ```python
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(
        "path/to/preset", class_names=["negative", "positive"]
    )
    classifier.fit(["A lovely film.", "A dull one."], ["positive", "negative"], epochs=3)
    classifier.predict(["What a lovely day."])
    ```
    """

    backbone_cls = GPT1Backbone
    preprocessor_cls = GPT1TextClassifierPreprocessor

    label_arguments = LABEL_ARGUMENTS
    fresh_arguments = FRESH_ARGUMENTS
    task_head: LabelHead

    def __init__(
        self,
        backbone: CausalBackbone,
        num_classes: int | None = None,
        preprocessor: GPT1TextClassifierPreprocessor | None = None,
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
        windows = getattr(preprocessor, "windows", 1)
        weigh = window_weights if windows > 1 else sequence_weights
        self.attach(backbone, preprocessor, head, weigh)

        # === Functional model ===
        if windows > 1:
            inputs = sequence_inputs(None, None)
            mask = inputs["padding_mask"]
            states = self.last_states(*map(WindowsAsRows(), inputs.values()), mask)
            outputs = _mean_of_windows(head)(head(states), mask)
        else:
            inputs = sequence_inputs(None)
            outputs = head(self.last_states(**inputs))
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    def predict_outputs(
        self, inputs: dict[str, Tensor], states_at: Callable[..., Tensor] | None = None
    ) -> Tensor:
        token_ids, mask = inputs["token_ids"], inputs["padding_mask"]
        has_windows = len(token_ids.shape) == 3
        if has_windows:
            token_ids, mask = map(WindowsAsRows(), (token_ids, mask))
        states = (states_at or self.backbone.states_at)(token_ids, last_token_index(mask))
        outputs = self.task_head.outputs(states[:, 0])
        if has_windows:
            outputs = _mean_of_windows(self.task_head)(outputs, inputs["padding_mask"])
        return outputs


def _mean_of_windows(head: LabelHead) -> MeanOfWindows:
    if head.is_linear and head.linear.units == 1:
        raise ValueError(
            "Of windows, probabilities are averaged, and a single logit is none. Received: "
            "num_classes=1, activation=None. Pass activation='sigmoid', or num_classes=2."
        )
    return MeanOfWindows(head.is_linear, dtype="float32")  # as the outputs of all heads are

"""GPT1MultipleChoice, and its preprocessor: the best of several choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import keras
import keras_hub
import numpy as np
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.optimization.objective import branch_weights
from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tasks.heads import ABSENT_CHOICE_LOGIT, Calibration, ChoiceHead
from gpt1_keras.tasks.task import Task
from gpt1_keras.tokenization.backend import text_backend
from gpt1_keras.tokenization.input_transformations import ROUND_ROBIN
from gpt1_keras.tokenization.padding import PadTo
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.types import TaskArguments, Tensor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1MultipleChoicePreprocessor(FieldsPreprocessor, keras_hub.models.Preprocessor):
    """Tokenizes, frames, truncates and pads contexts, questions and their choices.

    Args:
        tokenizer: `GPT1Tokenizer`.
        sequence_length: the most tokens of context, question and one choice together, with special
            tokens. All choices of an example together are padded to this length, or to 2, 4, 8, ...
            times it.
        fields: names of the context, the question (optional) and the choices.
        truncate: as in `GPT1TextClassifierPreprocessor`; the first text is the context with the
            question, and the second is a choice.
        tail: as in `GPT1TextClassifierPreprocessor`.

    Call arguments:
        x: a tuple of strings, or a dict by field: context and question `[batch]`, and choices
            `[batch, choices]`. If examples differ in their number of choices, these are a ragged
            tensor or nested lists; in a dense tensor, empty strings after an example's last choice
            are no choices. One example has no axis `batch`.
        y: the indices of the right choices, passed through.
        sample_weight: passed through.
        pad_to: as in `GPT1TextClassifierPreprocessor`.

    Returns:
        dict, as `pad_choices` in `padding` returns it, without `batch` for one example; with `y`, a
        tuple for Keras's `fit`.

    Raises:
        ValueError: the texts do not match the fields, or have other shapes.
        ValueError, or in a graph tf.errors.InvalidArgumentError: an example has no choices, or a
            label is not the index of one.
    """

    field_counts = (2, 3)
    field_purpose = "a context, an optional question, and choices"

    def __init__(
        self,
        tokenizer: GPT1Tokenizer,
        sequence_length: int = 512,
        fields: Sequence[str] = ("context", "question", "choices"),
        truncate: str = ROUND_ROBIN,
        tail: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(fields, truncate, tail, **kwargs)
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length

    def frame(self, segments: list[Any]) -> tuple[Any, Any]:
        """See `FieldsPreprocessor.frame`; returns what `frame_choices` returns."""
        return text_backend().frame_choices(
            segments, self.tokenizer, self.sequence_length, self.truncate, self.tail
        )

    def check_labels(self, texts: dict[str, Any], y: Any) -> None:
        text_backend().check_choices(texts[self.fields[-1]], y)

    def pad(self, framed: Any, pad_to: PadTo = "bucket") -> dict[str, Any]:
        """See `FieldsPreprocessor.pad`; returns what `pad_choices` returns."""
        return text_backend().pad_choices(framed, self.tokenizer, self.sequence_length, pad_to)

    def count_tokens(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.reduce_sum(tf.cast(inputs["branches"] >= 0, tf.int32), axis=-1)

    def as_tensors(self, texts: dict[str, Any]) -> dict[str, Any]:
        """See `FieldsPreprocessor.as_tensors`; choices are ragged, `[batch, None]`."""
        backend = text_backend()
        *names, choices = self.fields
        tensors = {name: backend.as_texts(texts[name]) for name in names}
        tensors[choices] = backend.as_choices(texts[choices])
        ranks = {name: backend.rank(tensor) for name, tensor in tensors.items()}
        if list(ranks.values()) != [1] * len(names) + [2]:
            raise ValueError(
                "Expected strings of shapes [batch], and [batch, choices] for the choices; or "
                f"without `batch`. Received ranks: {ranks}."
            )
        return tensors

    def _by_field(self, x: Any) -> dict[str, Any]:
        return super()._by_field(tuple(x) if isinstance(x, list) else x)


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1MultipleChoice(Task, keras_hub.models.Task):
    """Selects one of several choices; examples may differ in their number (section 3.3).

    Each choice is read after the context and the question. A linear layer with one output, on the
    hidden state at the choice's extract token, gives its logit; a softmax over the choices gives
    probabilities. Context and question are read once for all choices, as the backbone is causal.

    `fit`, `evaluate` and `predict` take raw strings; labels are the indices of the right choices,
    from 0.
    `predict` returns logits, float32 `[batch, choices]`, -1e9 for absent choices.

    Args:
        backbone: `GPT1Backbone` or `LSTMBackbone`.
        preprocessor: `GPT1MultipleChoicePreprocessor`; `None` if inputs are ids.
        dropout: rate of dropout on the hidden states at the extract tokens; 0.1 in the paper. All
            choices of an example share a mask, as in the released code.
        temperature, sure_threshold: as in `GPT1TextClassifier`.

    Example:
    ```python
    chooser = gpt1_keras.GPT1MultipleChoice.from_preset("path/to/preset")
    texts = {
        "context": ["The sun shone all day."],
        "question": ["What was the weather like?"],
        "choices": [["It rained.", "It was fine.", "It snowed."]],
    }
    chooser.fit(texts, [1], epochs=3)
    chooser.predict(texts)
    ```
    """

    backbone_cls = GPT1Backbone
    preprocessor_cls = GPT1MultipleChoicePreprocessor
    task_head: ChoiceHead

    def __init__(
        self,
        backbone: CausalBackbone,
        preprocessor: GPT1MultipleChoicePreprocessor | None = None,
        *,
        dropout: float = 0.1,
        temperature: float = 1.0,
        sure_threshold: float | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        # === Layers ===
        calibration = Calibration(temperature, sure_threshold)
        head = ChoiceHead(dropout, backbone.dtype_policy, calibration)
        self.attach(backbone, preprocessor, head, weigh=branch_weights)

        # === Functional model ===
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in ("token_ids", "positions", "branches", "extract_indices")
        }
        x = backbone.encode_branches(**inputs)
        is_present = inputs["extract_indices"] >= 0
        x = self.auxiliary(x, inputs["token_ids"], inputs["branches"], is_present)
        indices = ops.expand_dims(ops.maximum(inputs["extract_indices"], 0), -1)
        logits = head(ops.take_along_axis(x, indices, axis=1))
        outputs = ops.where(is_present, logits, ABSENT_CHOICE_LOGIT)
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    def make_predict_function(self, force: bool = False) -> None:
        if self.predict_function is None or force:
            super().make_predict_function(force)
            _keep_batches_apart(self)  # as batches may differ in their largest number of choices

    def predict_outputs(
        self, inputs: dict[str, Tensor], states_at: Callable[..., Tensor] | None = None
    ) -> Tensor:
        names = ("token_ids", "extract_indices", "positions", "branches")
        states = (states_at or self.backbone.states_at)(*(inputs[name] for name in names))
        logits = self.task_head.outputs(states)
        return ops.where(inputs["extract_indices"] >= 0, logits, ABSENT_CHOICE_LOGIT)


def _keep_batches_apart(model: keras.Model) -> None:
    """Makes `predict` return batches of outputs that differ in width.

    On JAX and torch, Keras joins batches by `np.concatenate`, which fails on them. So each batch
    becomes the one element of an array of objects, and `predict` returns an array of these
    elements. TensorFlow returns a ragged tensor by itself.
    """
    predict = model.predict_function

    def element(outputs: Tensor) -> np.ndarray:
        array = np.empty(1, object)
        array[0] = outputs
        return array

    def predict_function(*data: Any) -> Any:
        outputs = predict(*data)
        if keras.backend.backend() == "jax":  # whose step also returns the state
            return element(outputs[0]), outputs[1]
        return element(outputs)

    if keras.backend.backend() != "tensorflow":
        model.predict_function = predict_function

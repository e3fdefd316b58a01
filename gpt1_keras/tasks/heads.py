"""Heads: the layers on the hidden states at extract tokens, and calibrated outputs.

A task holds its head as `task_head`. The heads for classes and for scores are in `label_heads`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.layers import initializer
from gpt1_keras.tasks.labels import once_valid, one_for_each
from gpt1_keras.types import Tensor

# So far below other logits that its softmax is 0.
ABSENT_CHOICE_LOGIT = -1e9
_WHOLE_NUMBER = r"\s*[0-9]+(\.0*)?\s*"  # as files may have an index


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The temperature and threshold that `gpt1 calibrate` learns on validation data.

    Args:
        temperature: logits are divided by it before the softmax (Guo et al., 2017, section 4.2). It
            never changes which logit is the largest. ValueError unless it is above 0.
        sure_threshold: a prediction with at least this probability is called sure; None for no
            threshold. ValueError unless it is from 0 to 1.
    """

    temperature: float = 1.0
    sure_threshold: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.temperature < math.inf:
            raise ValueError(f"`temperature` must be above 0. Received: {self.temperature}.")
        if self.sure_threshold is not None and not 0.0 <= self.sure_threshold <= 1.0:
            raise ValueError(
                f"`sure_threshold` must be from 0 to 1. Received: {self.sure_threshold}."
            )

    def probabilities(self, logits: Tensor) -> Tensor:
        """Returns the softmax at the temperature, float of the logits' shape."""
        return ops.softmax(logits if self.temperature == 1.0 else logits / self.temperature)

    def is_sure(self, probabilities: Tensor) -> Tensor:
        """Returns whether each largest probability reaches the threshold, bool `[batch]`."""
        return ops.max(probabilities, axis=-1) >= self.sure_threshold

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that differ from the defaults: presets need only these."""
        given = dataclasses.asdict(self)
        return {name: value for name, value in given.items() if value != FRESH_ARGUMENTS[name]}


UNCALIBRATED = Calibration()
# The calibration of a fresh head, as arguments of a task: that of the preset's own head does not
# fit it.
FRESH_ARGUMENTS = dataclasses.asdict(UNCALIBRATED)


class Head:
    """The meaning of a task's labels and outputs.

    This base class is also the language model's head: it has no layers and returns both unchanged,
    as the logits come from the token embedding.
    """

    class_names: list[str] | None = None
    score_range: tuple[int, int] | None = None
    is_multi_label = False  # whether an example may have several classes, each by itself
    labels_are_classes = True  # whether a sparse loss can take them
    calibration: Calibration | None = None  # for predictions that have probabilities

    @property
    def num_classes(self) -> int | None:
        return None if self.class_names is None else len(self.class_names)

    def encode_labels(self, labels: Tensor) -> Tensor:
        """Turns users' labels into labels for the default loss."""
        return labels

    def encode_names(self, labels: Tensor) -> Tensor:
        """Turns names of classes into numbers, for a user's loss; leaves other labels unchanged."""
        return labels

    def default_loss(self) -> keras.losses.Loss | None:
        """Returns the loss of training, unless `compile` is given another: L2 (equation 4)."""
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        """Returns the metrics that `fit` reports, unless `compile` is given others."""
        return []

    def weights_by_number(self, class_weight: Mapping[Any, float]) -> dict[int, float]:
        """Turns `class_weight`, by class names or numbers, into a weight for every class number.

        Raises:
            ValueError: a class is unknown or given twice, a weight is no finite number, or labels
                are not classes.
        """
        raise ValueError(
            f"`class_weight` is for labels that are classes. Received: {class_weight}."
        )

    def predictions(self, outputs: Tensor) -> Tensor:
        """Turns the model's outputs for a whole data set into what `predict` returns."""
        return outputs

    def measured(self, outputs: Tensor) -> Tensor:
        """Turns the model's outputs for a batch into what metrics compare with labels.

        It is what `predict` returns; one number for each example is `[batch, 1]`.
        """
        return outputs

    def logits(self, outputs: Tensor) -> Tensor:
        """Returns the logits of the model's outputs, which `calibration` makes probabilities of."""
        return outputs

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Returns the calibrated probabilities of the model's outputs.

        Raises:
            ValueError: the predictions have no probabilities, such as scores.
        """
        if self.calibration is None:
            raise ValueError(
                "Only two classes or more, or choices, have probabilities. Received: outputs of a "
                f"{type(self).__name__}."
            )
        return self.calibration.probabilities(self.logits(outputs))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the task's constructor that the head holds."""
        return {}


class ExtractHead(Head):
    """Dropout and a linear layer on the hidden states at the extract tokens (section 3.2).

    Call it with hidden states to build the functional model; `outputs` is the same without dropout.
    The dropout's mask has `dropout_shape`, with 1 where it is shared.
    """

    def __init__(
        self,
        units: int,
        dropout: float,
        dtype: str | keras.DTypePolicy | None = None,
        dropout_shape: tuple[int | None, ...] | None = None,
    ) -> None:
        self.dropout = keras.layers.Dropout(
            dropout, noise_shape=dropout_shape, dtype=dtype, name="extract_dropout"
        )
        self.linear = keras.layers.Dense(
            units, kernel_initializer=initializer(), dtype=dtype, name="head"
        )

    def __call__(self, hidden_states: Tensor) -> Tensor:
        return self.outputs(self.dropout(hidden_states))

    def outputs(self, hidden_states: Tensor) -> Tensor:
        """Returns the model's outputs in inference, float32 `[..., units]`.

        The hidden states, float `[..., hidden_dim]`, are those at the extract tokens.
        """
        return ops.cast(self.linear(hidden_states), "float32")

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def get_config(self) -> dict[str, Any]:
        return {"dropout": self.dropout.rate}


class ChoiceHead(ExtractHead):
    """Multiple choice: one logit per choice.

    All choices of an example share a dropout mask, as in the released code.
    """

    calibration: Calibration

    def __init__(
        self,
        dropout: float,
        dtype: str | keras.DTypePolicy | None = None,
        calibration: Calibration = UNCALIBRATED,
    ) -> None:
        super().__init__(1, dropout, dtype, dropout_shape=(None, 1, None))
        self.calibration = calibration

    def encode_labels(self, labels: Tensor) -> Tensor:
        """Turns labels, whole numbers or strings of them, into indices of choices, int32 `[batch]`.

        The preprocessor checks that the examples have these choices.

        Raises:
            ValueError: a label is not a whole number, or there are several for an example. In a
                graph, the former is tf.errors.InvalidArgumentError.
        """
        labels = numbers = one_for_each(labels, "One choice is right.")
        if labels.dtype == tf.string:
            is_number = tf.strings.regex_full_match(labels, _WHOLE_NUMBER)
            numbers = tf.strings.to_number(tf.where(is_number, labels, "nan"), tf.float64)
        elif labels.dtype == tf.bool:
            numbers = tf.cast(labels, tf.int32)
        message = "Labels must be indices of choices, whole numbers from 0. Received:"
        indices = tf.cast(numbers, tf.int32)
        return once_valid(indices, tf.cast(indices, numbers.dtype) == numbers, message, labels)

    def outputs(self, hidden_states: Tensor) -> Tensor:
        """Returns float32 `[batch, choices]` from `[batch, choices, hidden_dim]`."""
        return ops.squeeze(super().outputs(hidden_states), axis=-1)

    def predictions(self, outputs: Tensor) -> np.ndarray:
        # Batches may differ in their largest number of choices. Then Keras returns a ragged tensor
        # on TensorFlow, and an array of the batches elsewhere, see `GPT1MultipleChoice`.
        if hasattr(outputs, "to_tensor"):
            return outputs.to_tensor(ABSENT_CHOICE_LOGIT).numpy()
        if outputs.dtype != object:
            return outputs
        batches = [ops.convert_to_numpy(batch) for batch in outputs]
        most = max(batch.shape[1] for batch in batches)
        padded = [
            np.pad(
                batch,
                ((0, 0), (0, most - batch.shape[1])),
                constant_values=ABSENT_CHOICE_LOGIT,
            )
            for batch in batches
        ]
        return np.concatenate(padded)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.calibration.get_config()}


def sequence_inputs(*shape: int | None) -> dict[str, keras.KerasTensor]:
    """Returns the inputs of a model of sequences: ids and their padding mask, int32 of a shape."""
    return {
        name: keras.Input(shape, dtype="int32", name=name) for name in ("token_ids", "padding_mask")
    }


def last_token_index(padding_mask: Tensor) -> Tensor:
    """Returns the index of each sequence's last token, int `[batch, 1]`."""
    return ops.sum(padding_mask, axis=1, keepdims=True) - 1


def last_token_states(hidden_states: Tensor, padding_mask: Tensor) -> Tensor:
    """Returns the hidden state of each sequence's last token, float `[batch, hidden_dim]`."""
    last = last_token_index(padding_mask)
    return ops.squeeze(ops.take_along_axis(hidden_states, last[:, :, None], axis=1), axis=1)

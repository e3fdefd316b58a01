"""Heads: the layers on the hidden states at extract tokens, and what a task's labels are.

A task holds its head as `task_head`. Those for classes are in `class_heads`, that for scores
in `label_heads`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from gpt1_keras.models.layers import initializer
from gpt1_keras.tasks.calibration import UNCALIBRATED, Calibration
from gpt1_keras.types import Tensor

# So far below any other logit that softmax makes it 0.
ABSENT_CHOICE_LOGIT = -1e9


class Head:
    """What a task's labels and outputs are.

    This one has no layers and passes both through: the language model's, whose logits come from the
    token embedding.
    """

    class_names: list[str] | None = None
    score_range: tuple[int, int] | None = None
    labels_are_classes = True  # so that a sparse loss takes them
    calibration: Calibration | None = None  # of a head whose answers have probabilities

    @property
    def num_classes(self) -> int | None:
        return None if self.class_names is None else len(self.class_names)

    def encode_labels(self, labels: Tensor) -> Tensor:
        """Turns labels as users give them into those that the default loss takes."""
        return labels

    def encode_names(self, labels: Tensor) -> Tensor:
        """Turns names of classes into numbers, and leaves other labels to a loss of the user's."""
        return labels

    def default_loss(self) -> keras.losses.Loss | None:
        """The loss that the task is trained with, unless `compile` is given another."""
        return None

    def default_metrics(self) -> list[keras.metrics.Metric]:
        """The metrics that `fit` reports, unless `compile` is given others."""
        return []

    def weights_by_number(self, class_weight: Mapping[Any, float]) -> dict[int, float]:
        """Turns `class_weight`, by names or numbers of classes, into that of every class's number.

        Raises:
            ValueError: a class is unknown or named twice, or there are none.
        """
        raise ValueError(
            f"`class_weight` is for labels that are classes. Received: {class_weight}."
        )

    def predictions(self, outputs: Tensor) -> Tensor:
        """Turns the model's outputs for a whole data set into what `predict` returns."""
        return outputs

    def logits(self, outputs: Tensor) -> Tensor:
        """The logits of what `predict` returns, from which `calibration` makes probabilities."""
        return outputs

    def probabilities(self, outputs: Tensor) -> Tensor:
        """The calibrated probabilities of what `predict` returns.

        Raises:
            ValueError: the answers have none, as scores have not.
        """
        if self.calibration is None:
            raise ValueError(
                "Probabilities are of two classes or more, or of choices. Received: outputs of a "
                f"{type(self).__name__}."
            )
        return self.calibration.probabilities(self.logits(outputs))

    def get_config(self) -> dict[str, Any]:
        """The arguments of the task's constructor that the head holds."""
        return {}


class ExtractHead(Head):
    """Dropout and a linear layer on the hidden states at the extract tokens (section 3.2).

    Call it with hidden states to build the model's graph; `outputs` is the same without dropout.

    Args:
        units: outputs of the linear layer.
        dropout: the rate, on the hidden states.
        dtype: a Keras dtype or policy.
        dropout_shape: shape of the dropout's mask, with 1 where it is shared.
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
        """The model's outputs in inference.

        Args:
            hidden_states: float `[..., hidden_dim]`, at the extract tokens.

        Returns:
            float32 `[..., units]`.
        """
        return ops.cast(self.linear(hidden_states), "float32")

    def default_loss(self) -> keras.losses.Loss:
        """L2 (equation 4)."""
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def get_config(self) -> dict[str, Any]:
        return {"dropout": self.dropout.rate}


class LabelHead(ExtractHead):
    """A head for one label per example, with an activation on its logits.

    Args:
        units, dropout, dtype: as in `ExtractHead`.
        activation: on the logits, as in `keras.layers.Activation`.
    """

    def __init__(
        self,
        units: int,
        activation: str | Callable | None,
        dropout: float,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        super().__init__(units, dropout, dtype)
        self._activation = keras.layers.Activation(activation, dtype="float32", name="scores")

    @property
    def activation(self) -> Callable:
        """The function on the logits, the identity if there is none."""
        return self._activation.activation

    def activate(self, logits: Tensor) -> Tensor:
        """The outputs from logits, float32 of the same shape."""
        return self._activation(logits)

    def outputs(self, hidden_states: Tensor) -> Tensor:
        return self.activate(self.linear(hidden_states))

    def refuse_default_loss(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """The default loss of outputs that it does not fit. Raises ValueError."""
        raise ValueError(
            "The default loss is for logits (activation=None) or probabilities (a softmax, or a "
            f"sigmoid of one class). Received: activation={self.activation}. Pass a `loss` that "
            "fits it to `compile`."
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "class_names": self.class_names,
            "score_range": self.score_range,
            "activation": keras.activations.serialize(self.activation),
        }


class ChoiceHead(ExtractHead):
    """Multiple choice: one logit per choice.

    All choices of an example share a dropout mask, as in the released code.

    Args:
        dropout, dtype: as in `ExtractHead`.
        calibration: of the probabilities.
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

    def outputs(self, hidden_states: Tensor) -> Tensor:
        """Returns float32 `[batch, choices]` from `[batch, choices, hidden_dim]`."""
        return ops.squeeze(super().outputs(hidden_states), axis=-1)

    def predictions(self, outputs: Tensor) -> np.ndarray:
        # Keras returns a ragged tensor where batches differ in their largest number of choices.
        is_ragged = hasattr(outputs, "to_tensor")
        return outputs.to_tensor(ABSENT_CHOICE_LOGIT).numpy() if is_ragged else outputs

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.calibration.get_config()}


def sequence_inputs(*shape: int | None) -> dict[str, keras.KerasTensor]:
    """Returns the inputs of a model of sequences: ids and their padding mask, int32 of a shape."""
    return {
        name: keras.Input(shape, dtype="int32", name=name) for name in ("token_ids", "padding_mask")
    }


def last_token_index(padding_mask: Tensor) -> Tensor:
    """The index of each sequence's last token, int `[batch, 1]`."""
    return ops.sum(padding_mask, axis=1, keepdims=True) - 1


def last_token_states(hidden_states: Tensor, padding_mask: Tensor) -> Tensor:
    """The hidden state of each sequence's last token, float `[batch, hidden_dim]`."""
    last = last_token_index(padding_mask)
    return ops.squeeze(ops.take_along_axis(hidden_states, last[:, :, None], axis=1), axis=1)

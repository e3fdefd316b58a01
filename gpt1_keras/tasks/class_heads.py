"""Heads for classes: several classes, or one that an example has or has not."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tasks.calibration import UNCALIBRATED, Calibration
from gpt1_keras.tasks.heads import LabelHead
from gpt1_keras.tasks.labels import index_of_name, index_of_number, number_of, one_for_each
from gpt1_keras.types import Tensor

_TINY = 1e-37  # about the smallest positive float32 with full precision


class ClassHead(LabelHead):
    """Classification: one logit per class.

    Labels that are strings are names of classes. Labels that are numbers or bools are names too,
    where a class has a number or a bool for its name: of `["1", "3", "5"]`, 3 is the second class.
    Where no class has, they are indices of classes, from 0, and False and True are 0 and 1.

    Args:
        class_names: the classes.
        activation, dropout, dtype: as in `LabelHead`.
        calibration: the calibration of the probabilities.

    Raises:
        ValueError: two classes have the same name; or there is a temperature, and the activation is
            neither linear nor a softmax.
    """

    class_names: list[str]
    calibration: Calibration

    def __init__(
        self,
        class_names: Sequence[str],
        activation: str | Callable | None,
        dropout: float,
        dtype: str | keras.DTypePolicy | None = None,
        calibration: Calibration = UNCALIBRATED,
    ) -> None:
        self.class_names = [str(name) for name in class_names]
        if len(set(self.class_names)) != len(self.class_names):
            raise ValueError(f"Class names must differ. Received: {class_names}.")
        named = [number_of(name) for name in self.class_names]
        self._has_numbers = any(number is not None for number in named)
        self._numbers = named if self._has_numbers else [*range(len(named))]
        super().__init__(len(self.class_names), activation, dropout, dtype)
        self.calibration = calibration
        if calibration.temperature != 1.0:
            self.check_has_logits()

    def check_has_logits(self) -> None:
        """Raises ValueError unless logits can be computed from the outputs."""
        if self._is_linear or is_softmax(self.activation):
            return
        raise ValueError(
            "A temperature is for logits (activation=None) or for the probabilities of a softmax. "
            f"Received: activation={self.activation}."
        )

    @property
    def _is_linear(self) -> bool:
        return self.activation is keras.activations.linear

    def logits(self, outputs: Tensor) -> Tensor:
        self.check_has_logits()
        # A probability that has underflowed to 0 has no logarithm.
        return outputs if self._is_linear else ops.log(ops.maximum(outputs, _TINY))

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Like `Head.probabilities`; after an activation other than softmax, the outputs."""
        if not self._is_linear and self.calibration.temperature == 1.0:
            return outputs
        return super().probabilities(outputs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.calibration.get_config()}

    def encode_labels(self, labels: Tensor) -> Tensor:
        """Turns labels, strings, whole numbers or bools, into indices of classes, int32 `[batch]`.

        Raises:
            ValueError: more than one number for an example, such as one-hot labels; or a label is
                not a class. In a graph, the latter is tf.errors.InvalidArgumentError.
        """
        is_sigmoid = self.activation is keras.activations.sigmoid
        loss = "BinaryCrossentropy" if is_sigmoid else "CategoricalCrossentropy"
        labels = one_for_each(
            labels,
            "For a number for each class, compile with "
            f"keras.losses.{loss}(from_logits={self._is_linear}).",
        )
        or_index = "" if self._has_numbers else " or its index, from 0"
        message = f"Labels must be one of {self.class_names}{or_index}. Received:"
        if labels.dtype == tf.string:
            return index_of_name(labels, self.class_names, message)
        return index_of_number(labels, self._numbers, message)

    def encode_names(self, labels: Tensor) -> Tensor:
        labels = tf.convert_to_tensor(labels)
        return self.encode_labels(labels) if labels.dtype == tf.string else labels

    def weights_by_number(self, class_weight: Mapping[Any, float]) -> dict[int, float]:
        return _weights_by_number(class_weight, self.class_names, self._numbers)

    def default_loss(self) -> Any:
        """Cross-entropy, L2 (equation 4), of logits or of the probabilities of a softmax.

        For another activation, it is a loss that raises ValueError when it is computed.
        """
        if self._is_linear or is_softmax(self.activation):
            return keras.losses.SparseCategoricalCrossentropy(from_logits=self._is_linear)
        return self.refuse_default_loss


class OneClassHead(LabelHead):
    """Classification by one output: a logit, or the class's probability by a sigmoid.

    Labels are 1 and 0, or bool, `[batch]`.

    Args:
        activation, dropout, dtype: as in `LabelHead`.

    Raises:
        ValueError: the activation is a softmax, which is 1 for any logit.
    """

    num_classes = 1
    labels_are_classes = False

    def __init__(
        self,
        activation: str | Callable | None,
        dropout: float,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        super().__init__(1, activation, dropout, dtype)
        if is_softmax(self.activation):
            raise ValueError(
                "The softmax of one class is always 1. Received: num_classes=1, activation="
                f"{activation!r}. Pass activation='sigmoid', or num_classes=2."
            )

    def encode_labels(self, labels: Tensor) -> Tensor:
        """Checks labels, 1 and 0, or bool, and returns them as int32 `[batch]`.

        Raises:
            ValueError: the labels are strings, there are several for an example, or a label is
                neither 0 nor 1. In a graph, the last is tf.errors.InvalidArgumentError.
        """
        labels = one_for_each(labels, "For several classes of a text, give `num_classes`.")
        if labels.dtype == tf.string:
            raise ValueError("Labels of one class are 0 and 1. Received: strings.")
        return index_of_number(labels, [0, 1], "Labels of one class must be 0 or 1. Received:")

    def weights_by_number(self, class_weight: Mapping[Any, float]) -> dict[int, float]:
        return _weights_by_number(class_weight, ["0", "1"], [0, 1])

    def score_of(self, outputs: Tensor) -> Tensor:
        """Returns the outputs without their last axis, float32 `[batch]`."""
        return outputs[..., 0]

    def default_loss(self) -> Any:
        """Binary cross-entropy, of logits or of the probabilities of a sigmoid.

        For another activation, it is a loss that raises ValueError when it is computed.
        """
        is_linear = self.activation is keras.activations.linear
        if is_linear or self.activation is keras.activations.sigmoid:
            return keras.losses.BinaryCrossentropy(from_logits=is_linear)
        return self.refuse_default_loss

    def default_metrics(self) -> list[keras.metrics.Metric]:
        is_linear = self.activation is keras.activations.linear
        threshold = 0.0 if is_linear else 0.5
        return [keras.metrics.BinaryAccuracy(name="accuracy", threshold=threshold)]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_classes": 1}


def is_softmax(activation: Callable) -> bool:
    """Returns whether an activation is a softmax."""
    return activation is keras.activations.softmax or isinstance(activation, keras.layers.Softmax)


def _weights_by_number(
    class_weight: Mapping[Any, float], class_names: list[str], numbers: Sequence[float | None]
) -> dict[int, float]:
    """Like `Head.weights_by_number`, for these classes and their numbers as labels."""
    weights = dict.fromkeys(range(len(class_names)), 1.0)
    given: dict[int, float] = {}
    for key, weight in class_weight.items():
        known = class_names if isinstance(key, str) else numbers
        if known.count(key) != 1:
            raise ValueError(
                f"`class_weight` has unknown classes, such as {key!r}; expected some of "
                f"{class_names}, as labels call them."
            )
        given[known.index(key)] = float(weight)
    if len(given) < len(class_weight):
        raise ValueError(f"`class_weight` has a class twice. Received: {class_weight}.")
    return weights | given

"""Heads for classes: several classes, or one that an example has or has not."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tasks.calibration import UNCALIBRATED, Calibration
from gpt1_keras.tasks.heads import LabelHead
from gpt1_keras.types import Tensor

_TINY = 1e-37  # about the smallest positive float32 with full precision


class ClassHead(LabelHead):
    """Classification: one logit per class.

    Labels are class numbers, int `[batch]`, or class names, string `[batch]`.

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
        """Turns labels into class numbers.

        Args:
            labels: whole numbers or bool `[batch]`, or string `[batch]` of class names.

        Returns:
            int32 `[batch]`, in [0, classes).

        Raises:
            ValueError: more than one number for an example, such as one-hot labels.
            tf.errors.InvalidArgumentError: a label is not a class.
        """
        labels = tf.convert_to_tensor(labels)
        _check_one_for_each(labels)
        message = f"Labels must be one of {self.class_names} or its number. Received:"
        if labels.dtype != tf.string:
            return _class_numbers(labels, len(self.class_names), message)
        matches = labels[..., tf.newaxis] == tf.constant(self.class_names)
        is_class = tf.reduce_any(matches, axis=-1)
        numbers = tf.argmax(matches, axis=-1, output_type=tf.int32)
        return once_valid(numbers, is_class, message, labels)

    def encode_names(self, labels: Tensor) -> Tensor:
        labels = tf.convert_to_tensor(labels)
        return self.encode_labels(labels) if labels.dtype == tf.string else labels

    def weights_by_number(self, class_weight: Mapping[Any, float]) -> dict[int, float]:
        return _weights_by_number(class_weight, self.class_names)

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
        """Checks labels.

        Args:
            labels: 1 and 0, or bool, `[batch]`.

        Returns:
            int32 `[batch]`.

        Raises:
            ValueError: the labels are strings, or there are several for an example.
            tf.errors.InvalidArgumentError: a label is neither 0 nor 1.
        """
        labels = tf.convert_to_tensor(labels)
        if labels.dtype == tf.string:
            raise ValueError("Labels of one class are 0 and 1. Received: strings.")
        _check_one_for_each(labels)
        return _class_numbers(labels, 2, "Labels of one class must be 0 or 1. Received:")

    def weights_by_number(self, class_weight: Mapping[Any, float]) -> dict[int, float]:
        return _weights_by_number(class_weight, ["0", "1"])

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


def _check_one_for_each(labels: Tensor) -> None:
    """Raises ValueError if there is more than one label for an example, such as one-hot labels."""
    if labels.shape.rank and labels.shape.rank > 1 and labels.shape[-1] != 1:
        raise ValueError(
            "The default loss takes one label for each example, a class or its number. "
            f"Received labels of shape {tuple(labels.shape)}. For a probability of each class, "
            "compile with keras.losses.CategoricalCrossentropy(from_logits=True)."
        )


def _class_numbers(labels: Tensor, classes: int, message: str) -> Tensor:
    """Returns labels, class numbers or bools, as int32 of the same shape, once they are valid."""
    if labels.dtype == tf.bool:
        labels = tf.cast(labels, tf.int32)
    numbers = tf.cast(labels, tf.int32)
    is_class = (labels >= 0) & (labels < classes)
    is_class &= tf.cast(numbers, labels.dtype) == labels  # whole
    return once_valid(numbers, is_class, message, labels)


def _weights_by_number(
    class_weight: Mapping[Any, float], class_names: list[str]
) -> dict[int, float]:
    """Like `Head.weights_by_number`, for these classes."""
    weights = dict.fromkeys(range(len(class_names)), 1.0)
    numbers = {name: number for number, name in enumerate(class_names)}
    unknown = [key for key in class_weight if numbers.get(key, key) not in weights]
    if unknown:
        raise ValueError(
            f"`class_weight` has the unknown classes {unknown}; expected some of {class_names} or "
            "their numbers."
        )
    given = {numbers.get(key, key): float(weight) for key, weight in class_weight.items()}
    if len(given) < len(class_weight):
        raise ValueError(f"`class_weight` has a class twice. Received: {class_weight}.")
    return weights | given


def once_valid(values: Tensor, are_valid: Tensor, message: str, received: Tensor) -> Tensor:
    """Returns the values, after a check that all are valid, in eager mode and in graphs."""
    invalid = tf.boolean_mask(received, ~are_valid)
    check = tf.debugging.Assert(tf.reduce_all(are_valid), [message, invalid])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(values)

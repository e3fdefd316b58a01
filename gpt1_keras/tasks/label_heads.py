"""Heads whose labels are classes, or scores in a range."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.optimization.objective import SoftLabelCrossEntropy
from gpt1_keras.tasks.heads import ExtractHead
from gpt1_keras.types import Tensor

# The constructor arguments of which `make_label_head` makes a head.
LABEL_ARGUMENTS = ("num_classes", "class_names", "score_range")


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

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "class_names": self.class_names,
            "score_range": self.score_range,
            "activation": keras.activations.serialize(self.activation),
        }


class ClassHead(LabelHead):
    """Classification: one logit per class.

    Labels are class numbers, int `[batch]`, or class names, string `[batch]`.

    Args:
        class_names: the classes.
        activation, dropout, dtype: as in `LabelHead`.

    Raises:
        ValueError: two classes have the same name.
    """

    class_names: list[str]

    def __init__(
        self,
        class_names: Sequence[str],
        activation: str | Callable | None,
        dropout: float,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        if len(set(class_names)) != len(class_names):
            raise ValueError(f"Class names must differ. Received: {class_names}.")
        self.class_names = [str(name) for name in class_names]
        super().__init__(len(self.class_names), activation, dropout, dtype)

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
        if labels.shape.rank and labels.shape.rank > 1 and labels.shape[-1] != 1:
            raise ValueError(
                "The default loss takes one label for each example, a class or its number. "
                f"Received labels of shape {tuple(labels.shape)}. For a probability of each class, "
                "compile with keras.losses.CategoricalCrossentropy(from_logits=True)."
            )
        if labels.dtype == tf.string:
            matches = labels[..., tf.newaxis] == tf.constant(self.class_names)
            is_class = tf.reduce_any(matches, axis=-1)
            numbers = tf.argmax(matches, axis=-1, output_type=tf.int32)
        else:
            if labels.dtype == tf.bool:
                labels = tf.cast(labels, tf.int32)
            numbers = tf.cast(labels, tf.int32)
            is_class = (labels >= 0) & (labels < len(self.class_names))
            is_class &= tf.cast(numbers, labels.dtype) == labels  # whole
        message = f"Labels must be one of {self.class_names} or its number. Received:"
        return _checked(numbers, is_class, message, labels)

    def encode_names(self, labels: Tensor) -> Tensor:
        labels = tf.convert_to_tensor(labels)
        return self.encode_labels(labels) if labels.dtype == tf.string else labels

    def default_loss(self) -> Any:
        """Cross-entropy, L2 (equation 4), of logits or of the probabilities of a softmax.

        Of the outputs of another activation, it is a loss that refuses to be computed.
        """
        is_linear = self.activation is keras.activations.linear
        is_softmax = self.activation is keras.activations.softmax
        if is_linear or is_softmax or isinstance(self.activation, keras.layers.Softmax):
            return keras.losses.SparseCategoricalCrossentropy(from_logits=is_linear)
        return self._refuse_default_loss

    def _refuse_default_loss(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        raise ValueError(
            "The default loss is for logits (activation=None) or a softmax. Received: "
            f"activation={self.activation}. Pass a `loss` that fits it to `compile`."
        )


class ScoreHead(LabelHead):
    """Regression: one logit per integer of a range, whose mean is the score.

    A reconstruction: the paper does not say how STS-B's scores were predicted.

    Args:
        score_range: two integers, the least and the greatest score.
        activation, dropout, dtype: as in `LabelHead`.

    Raises:
        ValueError: the range is not of two ascending integers.
    """

    score_range: tuple[int, int]

    def __init__(
        self,
        score_range: tuple[int, int],
        activation: str | Callable | None,
        dropout: float,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        low, high = score_range
        if not (low == int(low) and high == int(high) and low < high):
            raise ValueError(f"`score_range` must be two integers. Received: {(low, high)}.")
        self.score_range = (low, high)
        super().__init__(int(high - low) + 1, activation, dropout, dtype)

    def encode_labels(self, labels: Tensor) -> Tensor:
        """Checks scores.

        Args:
            labels: numbers `[batch]`.

        Returns:
            float32 `[batch]`.

        Raises:
            tf.errors.InvalidArgumentError: a score is outside the range.
        """
        low, high = self.score_range
        scores = tf.cast(tf.convert_to_tensor(labels), tf.float32)
        message = f"Scores must be from {low} to {high}. Received:"
        return _checked(scores, (scores >= low) & (scores <= high), message, scores)

    def score_of(self, logits: Tensor) -> Tensor:
        """The mean of the range's integers under the softmax of their logits, float32 `[batch]`."""
        low, high = self.score_range
        integers = np.arange(low, high + 1, dtype="float32")
        return ops.sum(ops.softmax(ops.cast(logits, "float32")) * integers, axis=-1)

    def predictions(self, outputs: Tensor) -> np.ndarray:
        return ops.convert_to_numpy(self.score_of(outputs))

    def default_loss(self) -> keras.losses.Loss:
        return SoftLabelCrossEntropy(self.score_range)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return []


def make_label_head(
    num_classes: int | None,
    class_names: Sequence[str] | None,
    score_range: tuple[int, int] | None,
    activation: str | Callable | None,
    dropout: float,
    dtype: str | keras.DTypePolicy | None = None,
) -> ClassHead | ScoreHead:
    """Returns the head for classes, given by number or name, or for scores.

    Raises:
        ValueError: not exactly one of classes and scores is given, `num_classes` and `class_names`
            differ, or see `ClassHead` and `ScoreHead`.
    """
    if score_range is not None:
        if num_classes is not None or class_names is not None:
            raise ValueError(
                "Expected classes or a range of scores. Received both: "
                f"num_classes={num_classes}, class_names={class_names}, score_range={score_range}."
            )
        return ScoreHead(score_range, activation, dropout, dtype)
    if class_names is None:
        if num_classes is None:
            raise ValueError("A classifier needs `num_classes` or `class_names`. Received neither.")
        class_names = [str(number) for number in range(num_classes)]
    elif num_classes not in (None, len(class_names)):
        raise ValueError(
            f"Received num_classes={num_classes}, but {len(class_names)} class_names: "
            f"{class_names}."
        )
    return ClassHead(class_names, activation, dropout, dtype)


def _checked(values: Tensor, are_valid: Tensor, message: str, received: Tensor) -> Tensor:
    """The values, once all of them are known to be valid, in eager mode and in graphs."""
    invalid = tf.boolean_mask(received, ~are_valid)
    check = tf.debugging.Assert(tf.reduce_all(are_valid), [message, invalid])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(values)

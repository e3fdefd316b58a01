"""Heads for one label of each example: its class, whether it has a class, or its score."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.optimization.objective import SoftLabelCrossEntropy
from gpt1_keras.tasks.heads import UNCALIBRATED, Calibration, ExtractHead
from gpt1_keras.tasks.labels import (
    as_weights,
    check_names,
    index_of_name,
    index_of_number,
    is_bool,
    number_of,
    once_valid,
    one_for_each,
)
from gpt1_keras.types import Tensor

# The constructor arguments that decide which head `make_label_head` makes.
LABEL_ARGUMENTS = ("num_classes", "class_names", "score_range")

_TINY = 1e-37  # about the smallest positive float32 with full precision


class LabelHead(ExtractHead):
    """A head for one label per example, with an activation on its logits, as Keras takes it."""

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

    @property
    def is_linear(self) -> bool:
        """Whether the outputs are logits."""
        return self.activation is keras.activations.linear

    def activate(self, logits: Tensor) -> Tensor:
        """Returns the outputs from logits, float32 of the same shape."""
        return self._activation(logits)

    def outputs(self, hidden_states: Tensor) -> Tensor:
        return self.activate(self.linear(hidden_states))

    def refuse_default_loss(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Raises ValueError, as the default loss of outputs that no default loss fits."""
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


class ClassHead(LabelHead):
    """Classification: one logit per class.

    Labels that are strings are names of classes. Labels that are numbers or bools are names too,
    where a class has a number or a bool for its name: of `["1", "3", "5"]`, 3 is the second class.
    Where no class has, they are indices of classes, from 0, and False and True are 0 and 1. Where
    the names are all the indices, and not in their order, as folders `["0", "1", "10", "2", ...]`
    are listed, numbers are refused: they may be either.

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
        indices = [*range(len(named))]
        self._numbers = named if self._has_numbers else indices
        self._may_be_indices = set(named) == set(indices) and named != indices
        self._are_bools = all(map(is_bool, self.class_names))
        super().__init__(len(self.class_names), activation, dropout, dtype)
        self.calibration = calibration
        if calibration.temperature != 1.0:
            self.check_has_logits()

    @property
    def is_multi_label(self) -> bool:  # type: ignore[override]
        return self.activation is keras.activations.sigmoid

    def check_has_logits(self) -> None:
        """Raises ValueError unless logits can be computed from the outputs."""
        if self.is_linear or is_softmax(self.activation):
            return
        raise ValueError(
            "A temperature is for logits (activation=None) or for the probabilities of a softmax. "
            f"Received: activation={self.activation}."
        )

    def logits(self, outputs: Tensor) -> Tensor:
        self.check_has_logits()
        # A probability that has underflowed to 0 has no logarithm.
        return outputs if self.is_linear else ops.log(ops.maximum(outputs, _TINY))

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Like `Head.probabilities`; after an activation other than softmax, the outputs."""
        if not self.is_linear and self.calibration.temperature == 1.0:
            return outputs
        return super().probabilities(outputs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.calibration.get_config()}

    def encode_labels(self, labels: Tensor) -> Tensor:
        """Turns labels, strings, whole numbers or bools, into indices of classes, int32 `[batch]`.

        Raises:
            ValueError: more than one number for an example, such as one-hot labels; numbers that
                may be names or indices; or a label is not a class. In a graph, the last is
                tf.errors.InvalidArgumentError.
        """
        loss = "BinaryCrossentropy" if self.is_multi_label else "CategoricalCrossentropy"
        labels = one_for_each(
            labels,
            "For a number for each class, compile with "
            f"keras.losses.{loss}(from_logits={self.is_linear}).",
        )
        or_index = "" if self._has_numbers else " or its index, from 0"
        message = f"Labels must be one of {self.class_names}{or_index}. Received:"
        if labels.dtype == tf.string:
            return index_of_name(labels, self.class_names, message)
        is_bool = labels.dtype == tf.bool
        self._refuse_unclear("Labels", "bools" if is_bool else "numbers", is_bool)
        return index_of_number(labels, self._numbers, message)

    def encode_names(self, labels: Tensor) -> Tensor:
        labels = tf.convert_to_tensor(labels)
        return self.encode_labels(labels) if labels.dtype == tf.string else labels

    def weights_by_number(self, class_weight: Mapping[Any, float]) -> dict[int, float]:
        for key in class_weight:
            if not isinstance(key, str):
                self._refuse_unclear(
                    "Keys of `class_weight`", repr(key), isinstance(key, (bool, np.bool_))
                )
        return _weights_by_number(class_weight, self.class_names, self._numbers)

    def _refuse_unclear(self, what: str, received: str, are_bools: bool) -> None:
        """Raises ValueError if numbers, or bools, may be names of classes or their indices."""
        if self._may_be_indices and not (are_bools and self._are_bools):
            raise ValueError(
                f"{what} must be strings, as the names of the classes are numbers in another "
                f"order than their indices, {self.class_names}. Received: {received}. If these are "
                "names, turn them into strings, or list the classes in the order of their numbers. "
                "If they are indices, turn them into names, with `tf.gather(class_names, labels)`."
            )

    def default_loss(self) -> Any:
        """Cross-entropy, L2 (equation 4), of logits or of the probabilities of a softmax.

        For another activation, it is a loss that raises ValueError when it is computed.
        """
        if self.is_linear or is_softmax(self.activation):
            return keras.losses.SparseCategoricalCrossentropy(from_logits=self.is_linear)
        return self.refuse_default_loss


class OneClassHead(LabelHead):
    """Classification by one output: a logit, or the class's probability by a sigmoid.

    Labels are 1 and 0, or bool, `[batch]`. Raises ValueError for a softmax, which is 1 for any
    logit.
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
        if self.is_linear or self.activation is keras.activations.sigmoid:
            return keras.losses.BinaryCrossentropy(from_logits=self.is_linear)
        return self.refuse_default_loss

    def default_metrics(self) -> list[keras.metrics.Metric]:
        threshold = 0.0 if self.is_linear else 0.5
        return [keras.metrics.BinaryAccuracy(name="accuracy", threshold=threshold)]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_classes": 1}


class ScoreHead(LabelHead):
    """Regression: one logit per integer of a range. The score is the mean of the integers.

    A reconstruction: the paper does not say how STS-B's scores were predicted. Raises ValueError if
    the range is not two ascending integers, or there is an activation.
    """

    score_range: tuple[int, int]
    labels_are_classes = False

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
        if not self.is_linear:
            raise ValueError(
                "A score is the mean under the softmax of logits, which no activation may change. "
                f"Received: score_range={score_range}, activation={activation!r}; expected None."
            )

    def encode_labels(self, labels: Tensor) -> Tensor:
        """Checks scores, numbers `[batch]` or `[batch, 1]`, and returns them as float32 `[batch]`.

        Raises:
            ValueError: the labels are strings, there are several for an example, or a score is
                outside the range. In a graph, the last is tf.errors.InvalidArgumentError.
        """
        low, high = self.score_range
        labels = one_for_each(labels, "A model predicts one score.")
        if labels.dtype == tf.string:
            raise ValueError(f"Scores are numbers from {low} to {high}. Received: strings.")
        scores = tf.cast(labels, tf.float32)
        message = f"Scores must be from {low} to {high}. Received:"
        return once_valid(scores, (scores >= low) & (scores <= high), message, scores)

    def score_of(self, logits: Tensor) -> Tensor:
        """Returns the mean of the integers under the softmax of their logits, float32 `[batch]`."""
        low, high = self.score_range
        integers = np.arange(low, high + 1, dtype="float32")
        return ops.sum(ops.multiply(ops.softmax(ops.cast(logits, "float32")), integers), axis=-1)

    def predictions(self, outputs: Tensor) -> np.ndarray:
        return ops.convert_to_numpy(self.score_of(outputs))

    def measured(self, outputs: Tensor) -> Tensor:
        return self.score_of(outputs)[:, None]

    def default_loss(self) -> keras.losses.Loss:
        return SoftLabelCrossEntropy(self.score_range)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return []


def is_softmax(activation: Callable) -> bool:
    """Returns whether an activation is a softmax."""
    return activation is keras.activations.softmax or isinstance(activation, keras.layers.Softmax)


def make_label_head(
    num_classes: int | None,
    class_names: Sequence[str] | None,
    score_range: tuple[int, int] | None,
    activation: str | Callable | None,
    dropout: float,
    temperature: float,
    sure_threshold: float | None,
    dtype: str | keras.DTypePolicy | None = None,
) -> LabelHead:
    """Returns the head for classes, given by number or name, or for scores.

    Raises ValueError unless classes or scores are given, and not both; for a wrong argument, or a
    calibration without two classes; or see the classes.
    """
    calibration = Calibration(temperature, sure_threshold)
    if score_range is not None:
        if num_classes is not None or class_names is not None:
            raise ValueError(
                "Expected classes or a range of scores. Received both: "
                f"num_classes={num_classes}, class_names={class_names}, score_range={score_range}."
            )
        _check_uncalibrated(calibration, f"score_range={score_range}")
        return ScoreHead(score_range, activation, dropout, dtype)
    if class_names is None and num_classes is None:
        raise ValueError("A classifier needs `num_classes` or `class_names`. Received neither.")
    _check_classes(num_classes, class_names)
    if num_classes == 1:
        _check_uncalibrated(calibration, "a single class")
        return OneClassHead(activation, dropout, dtype)
    if class_names is None:
        class_names = [str(number) for number in range(num_classes or 0)]
    return ClassHead(class_names, activation, dropout, dtype, calibration)


def task_with_classes(task: Any, names: Sequence[str]) -> Any:
    """Returns a task of more classes, with the head's weights; see `Task.with_classes`."""
    head = task.task_head
    if not isinstance(head, ClassHead):
        raise ValueError(
            "Only a classifier of two classes or more can be given others. Received: a "
            f"{type(task).__name__} with a {type(head).__name__}."
        )
    if head.linear.quantization_mode is not None or head.linear.lora_enabled:
        raise ValueError(
            "A head that is quantized or has LoRA cannot be given other classes. Received: "
            f"quantization_mode={head.linear.quantization_mode}, lora_enabled="
            f"{head.linear.lora_enabled}."
        )
    class_names = [*head.class_names, *_new_names(head.class_names, names)]
    larger = type(task)(
        task.backbone,
        preprocessor=task.preprocessor,
        class_names=class_names,
        activation=head.activation,
        dropout=task.dropout,
    )
    for old, new in zip(head.linear.weights, larger.head.weights, strict=True):
        fresh = new[..., head.num_classes :]
        new.assign(ops.concatenate([ops.convert_to_tensor(old), fresh], axis=-1))
    return larger


def _new_names(known: list[str], names: Any) -> list[str]:
    """Returns the names of classes to add; see `Task.with_classes` for the errors."""
    check_names(names)
    added = [str(name) for name in names]
    if not added or len({*known, *added}) < len(known) + len(added):
        raise ValueError(f"Expected one name or more beside {known}, each once. Received: {added}.")
    numbers = [name for name in added if number_of(name) is not None]
    if numbers and all(number_of(name) is None for name in known):
        raise ValueError(
            f"Labels that are numbers are indices of {known}; beside a class {numbers[0]!r}, they "
            "would be names. Give it a name that is no number."
        )
    return added


def _check_uncalibrated(calibration: Calibration, labels: str) -> None:
    """Raises ValueError if there is a calibration, which needs two classes or more."""
    if calibration != UNCALIBRATED:
        raise ValueError(
            "A temperature or a threshold is for two classes or more. Received: "
            f"{calibration.get_config()} with {labels}."
        )


def _check_classes(num_classes: Any, class_names: Any) -> None:
    """Raises ValueError unless the given ones agree, and say how many classes there are.

    Or see `check_names`.
    """
    if num_classes is not None:
        is_integer = hasattr(num_classes, "__index__") and not isinstance(num_classes, bool)
        if not is_integer or num_classes < 1:
            raise ValueError(f"`num_classes` must be an integer from 1. Received: {num_classes!r}.")
    if class_names is None:
        return
    check_names(class_names)
    if num_classes not in (None, len(class_names)):
        raise ValueError(
            f"Received num_classes={num_classes}, but {len(class_names)} class_names: "
            f"{class_names}."
        )
    if len(class_names) < 2:
        raise ValueError(
            f"`class_names` must be two or more. Received: {class_names}. For the probability of a "
            "single class, pass num_classes=1 and activation='sigmoid'."
        )


def _weights_by_number(
    class_weight: Mapping[Any, float], class_names: list[str], numbers: Sequence[float | None]
) -> dict[int, float]:
    """Like `Head.weights_by_number`, for these classes and their numbers as labels."""
    weights = dict.fromkeys(range(len(class_names)), 1.0)
    given: dict[int, float] = {}
    for key, weight in zip(class_weight, as_weights(list(class_weight.values())).tolist()):
        known = class_names if isinstance(key, str) else numbers
        if known.count(key) != 1:
            raise ValueError(
                f"`class_weight` has unknown classes, such as {key!r}; expected some of "
                f"{class_names}, as labels call them."
            )
        given[known.index(key)] = weight
    if len(given) < len(class_weight):
        raise ValueError(f"`class_weight` has a class twice. Received: {class_weight}.")
    return weights | given

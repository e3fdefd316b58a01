"""The head for scores in a range, and the choice of a head by a task's arguments."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.optimization.objective import SoftLabelCrossEntropy
from gpt1_keras.tasks.calibration import UNCALIBRATED, Calibration
from gpt1_keras.tasks.class_heads import ClassHead, OneClassHead
from gpt1_keras.tasks.heads import LabelHead
from gpt1_keras.tasks.labels import once_valid, one_for_each
from gpt1_keras.types import Tensor

# The constructor arguments that decide which head `make_label_head` makes.
LABEL_ARGUMENTS = ("num_classes", "class_names", "score_range")


class ScoreHead(LabelHead):
    """Regression: one logit per integer of a range. The score is the mean of the integers.

    A reconstruction: the paper does not say how STS-B's scores were predicted.

    Args:
        score_range: two integers, the lowest and the highest score.
        activation, dropout, dtype: as in `LabelHead`.

    Raises:
        ValueError: the range is not two ascending integers, or there is an activation.
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
        if self.activation is not keras.activations.linear:
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
    temperature: float,
    sure_threshold: float | None,
    dtype: str | keras.DTypePolicy | None = None,
) -> LabelHead:
    """Returns the head for classes, given by number or name, or for scores.

    Raises:
        ValueError: not exactly one of classes and scores is given; an argument is wrong, or
            `num_classes` and `class_names` differ; there is a calibration without two classes; or
            see `class_heads` and `ScoreHead`.
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


def _check_uncalibrated(calibration: Calibration, labels: str) -> None:
    """Raises ValueError if there is a calibration, which needs two classes or more."""
    if calibration != UNCALIBRATED:
        raise ValueError(
            "A temperature or a threshold is for two classes or more. Received: "
            f"{calibration.get_config()} with {labels}."
        )


def _check_classes(num_classes: Any, class_names: Any) -> None:
    """Raises ValueError unless the given ones agree, and say how many classes there are."""
    if num_classes is not None:
        is_integer = hasattr(num_classes, "__index__") and not isinstance(num_classes, bool)
        if not is_integer or num_classes < 1:
            raise ValueError(f"`num_classes` must be an integer from 1. Received: {num_classes!r}.")
    if class_names is None:
        return
    if isinstance(class_names, (str, bytes)) or not hasattr(class_names, "__len__"):
        raise ValueError(f"`class_names` must be a list of names. Received: {class_names!r}.")
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

"""Heads: the layers on the hidden states at extract tokens, labels, and calibrated outputs.

A task holds its head as `task_head`. The heads for classes and for scores are in `label_heads`.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
from collections.abc import Mapping, MappingView, Sequence, Set
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.layers import initializer
from gpt1_keras.tokenization.tensor_backend import check_each
from gpt1_keras.types import Tensor

_BOOLS = {"true": 1, "false": 0}  # as Python, R and JSON write them, in lower case
# Keras's losses and metrics that take class numbers beside several outputs. It chooses a sparse one
# for the second.
_SPARSE = re.compile("sparse|iou|circle|ctc", re.IGNORECASE)
_CHOSEN_BY_SHAPE = {"accuracy", "acc", "crossentropy", "ce"}
_LARGEST = 2**64  # of the whole numbers that a label may be
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


def as_labels(labels: Any) -> Any:
    """Returns labels in a form that TensorFlow takes: lists and pandas columns hold any objects.

    They are a list, tuple, array, tensor or pandas column; or a table of one column.

    Raises:
        ValueError: one is missing, such as None, NaN among strings or pandas.NA; or some are
            strings and others are numbers. The message names the first one's index.
    """
    if isinstance(labels, tuple):
        labels = list(labels)
    elif hasattr(labels, "to_numpy"):
        labels = labels.to_numpy()
    objects = np.array(labels, object) if isinstance(labels, list) else labels
    if not isinstance(objects, np.ndarray) or objects.dtype != object or not objects.size:
        return labels
    expected: Any = (numbers.Number, np.bool_)
    if isinstance(objects.flat[0], (str, bytes)):
        expected = (str, bytes)
    for index, label in np.ndenumerate(objects):
        # Arrays and tensors in a list are left to TensorFlow, which stacks them.
        if not isinstance(label, expected) and not hasattr(label, "shape"):
            raise ValueError(
                "Labels must be all strings or all numbers, and none may be missing. Received: "
                f"{label!r} at index {index[0] if index else 0}."
            )
    return labels if isinstance(labels, list) else objects.tolist()


def check_names(class_names: Any) -> None:
    """Raises ValueError unless names of classes are in a list, array or column, none missing."""
    is_one_name = isinstance(class_names, (str, bytes))
    has_no_order = isinstance(class_names, (Set, Mapping, MappingView))
    is_flat = hasattr(class_names, "__len__") and getattr(class_names, "ndim", 1) == 1
    if is_one_name or has_no_order or not is_flat:
        raise ValueError(f"`class_names` must be a list of names. Received: {class_names!r}.")
    for index, name in enumerate(class_names):
        if not isinstance(name, (str, numbers.Number, np.bool_)) or name != name:
            raise ValueError(
                "`class_names` must be strings, numbers or bools, and none may be missing. "
                f"Received: {name!r} at index {index}."
            )


def one_for_each(labels: Any, hint: str) -> Tensor:
    """Returns labels, `[batch]` or `[batch, 1]`, as a tensor with one for each example, `[batch]`.

    `hint` is the end of the message for other shapes.

    Raises:
        ValueError: there are several labels for an example, such as one-hot labels. In a graph that
            does not know how many, tf.errors.InvalidArgumentError.
    """
    labels = tf.convert_to_tensor(labels)
    if labels.shape.rank in (0, 1, None):
        return labels
    message = "The default loss takes one label for each example. Received"
    if labels.shape.rank > 2 or labels.shape[1] not in (1, None):
        raise ValueError(f"{message} labels of shape {tuple(labels.shape)}. {hint}")
    columns = tf.repeat(tf.shape(labels)[1], tf.shape(labels)[0])
    return once_valid(labels[:, 0], columns == 1, f"{message} numbers of labels:", columns)


def beside(labels: Any, outputs: Any) -> Any:
    """Returns labels, `[batch]`, as `[batch, 1]` where the outputs are.

    Otherwise a loss or metric of a user's own would compare each label with each output.
    """
    is_one = _ranks(labels, outputs) == (1, 2) and outputs.shape[-1] == 1
    return ops.expand_dims(labels, -1) if is_one else labels


def check_comparable(measures: Any, labels: Any, outputs: Any) -> None:
    """Checks that Keras's losses or metrics can compare labels with the outputs.

    Raises:
        ValueError: labels are one number for each example (or token), outputs are several, and a
            loss or metric compares them one by one. If the batch has as many examples, it would
            compare each with each.
    """
    label_rank, output_rank = _ranks(labels, outputs)
    if label_rank != output_rank - 1 or outputs.shape[-1] == 1:
        return
    for measure in tree.flatten(measures):
        name = keras_name(measure)
        if name and not _SPARSE.search(name):
            raise ValueError(
                f"{name} compares labels with outputs one by one, and each label is one number "
                f"beside {outputs.shape[-1]} outputs. Pass one that takes numbers of classes, such "
                "as SparseCategoricalAccuracy; or labels with a number for each output, and a loss "
                "for these. Received shapes: labels "
                f"{tuple(labels.shape)}, outputs {tuple(outputs.shape)}."
            )


def _ranks(labels: Any, outputs: Any) -> tuple[int, int]:
    """Returns the ranks of both, 0 for what is no tensor."""
    return len(getattr(labels, "shape", ())), len(getattr(outputs, "shape", ()))


def keras_name(measure: Any) -> str:
    """Returns the name of a loss or metric of Keras's that compares in one way; else empty."""
    if isinstance(measure, str):
        return "" if measure.lower() in _CHOSEN_BY_SHAPE else measure
    owner = measure if hasattr(measure, "__name__") else type(measure)
    is_users = owner.__module__.partition(".")[0] != "keras" or owner.__name__.endswith("Wrapper")
    return "" if is_users else owner.__name__


def once_valid(values: Tensor, are_valid: Tensor, message: str, received: Tensor) -> Tensor:
    """Returns the values, after `check_each` of the other arguments."""
    check = check_each(are_valid, message, received)
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(values)


def index_of_name(labels: Tensor, names: Sequence[str], message: str) -> Tensor:
    """Returns the index of each label among names of classes, int32 `[batch]`; see `once_valid`."""
    return _index_of(labels, tf.constant(names), message, labels)


def index_of_number(labels: Tensor, known: Sequence[float | None], message: str) -> Tensor:
    """Returns the index of each label, `[batch]`, among numbers of classes, int32 `[batch]`.

    Labels are numbers or bools; a class without a number has None. See `once_valid`.
    """
    if labels.dtype.is_floating:
        floats = [math.nan if number is None else float(number) for number in known]
        return _index_of(labels, tf.constant(floats, labels.dtype), message, labels)
    # As text, a large number stays apart from its neighbours.
    text = tf.strings.as_string(tf.cast(labels, tf.int32) if labels.dtype == tf.bool else labels)
    whole = ["" if each is None or each % 1 else str(int(each)) for each in known]
    return _index_of(text, tf.constant(whole), message, labels)


def _index_of(keys: Tensor, known: Tensor, message: str, labels: Tensor) -> Tensor:
    """Returns the index of each label's key among known ones, int32, if it is there once."""
    matches = keys[..., tf.newaxis] == known
    is_there = tf.reduce_sum(tf.cast(matches, tf.int32), axis=-1) == 1
    return once_valid(tf.argmax(matches, axis=-1, output_type=tf.int32), is_there, message, labels)


def is_bool(name: str) -> bool:
    """Returns whether a class has a bool for its name."""
    return name.lower() in _BOOLS


def number_of(name: str) -> float | None:
    """Returns the number that a class has for its name; 1 and 0 for bools, None for others."""
    if is_bool(name):
        return _BOOLS[name.lower()]
    try:
        number = float(name)
        exact = int(name) if name.strip("+-0123456789") == "" else number
    except ValueError:
        return None
    return exact if abs(number) < _LARGEST else None


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
            ValueError: a class is unknown or given twice, or labels are not classes.
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

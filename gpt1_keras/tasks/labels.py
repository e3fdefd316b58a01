"""Labels and weights as users give them: checked, found among classes, compared with outputs."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Mapping, MappingView, Sequence, Set
from typing import Any

import numpy as np
from keras import ops, tree

from gpt1_keras.lazy import has_tensorflow
from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.tensor_backend import check_each
from gpt1_keras.types import Tensor

_BOOLS = {"true": 1, "false": 0}  # as Python, R and JSON write them, in lower case
# Keras's losses and metrics that take class numbers beside several outputs. It chooses a sparse one
# for the second.
_SPARSE = re.compile("sparse|iou|circle|ctc", re.IGNORECASE)
_CHOSEN_BY_SHAPE = {"accuracy", "acc", "crossentropy", "ce"}
_LARGEST = 2**64  # of the whole numbers that a label may be


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


def as_weights(weights: Any) -> Any:
    """Returns weights of examples or tokens as a float32 array, or a tensor in a graph; None stays.

    They are a list, tuple, array, tensor or pandas column.

    Raises:
        ValueError: one is no finite number, such as None, NaN or pandas.NA, which would turn all
            that `fit` trains into NaN. The message names the first one's index. In a graph,
            tf.errors.InvalidArgumentError.
    """
    message = "Weights must be finite numbers. Received:"
    if weights is None:
        return None
    if has_tensorflow() and tf.is_tensor(weights) and not tf.executing_eagerly():
        if weights.dtype == tf.string:
            raise ValueError(f"{message} strings.")
        weights = tf.cast(weights, tf.float32)
        flat = tf.reshape(weights, [-1])
        return once_valid(weights, tf.math.is_finite(flat), message, flat)
    array = np.asarray(weights.to_numpy() if hasattr(weights, "to_numpy") else weights)
    if array.dtype.kind in "OSU":  # objects, or strings, which NumPy makes of all if one is
        array = np.asarray(weights, object)
        are_valid = [isinstance(each, numbers.Real) and math.isfinite(each) for each in array.flat]
    else:
        are_valid = np.isfinite(array.astype("float32")).ravel().tolist()
    if not all(are_valid):
        first = are_valid.index(False)
        index = np.unravel_index(first, array.shape)
        raise ValueError(f"{message} {array.ravel().tolist()[first]!r} at index {int(index[0])}.")
    return array.astype("float32")


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

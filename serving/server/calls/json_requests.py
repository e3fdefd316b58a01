"""Reads requests of the REST interface: from JSON documents to tensors and tf.Examples.

A request to predict has its inputs in rows, `{"instances": [...]}`, or in columns,
`{"inputs": ...}`. The input's name may be left out where there is only one, and so may inputs with
a default; in the versions of TensorFlow Serving that we could read, they may over gRPC alone. A
request to classify
or to regress has `{"examples": [...]}`, objects of features by name, and optionally a
`"context"` of features that all of them share.
"""

import base64
import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef
from tensorflow_serving.apis.input_pb2 import ExampleList, ExampleListWithContext, Input

from serving.server.calls.json_documents import BASE64_KEY, shown
from serving.server.errors import invalid_argument, set_of, type_name
from serving.server.limits.budget import MAX_DIMENSIONS, UNLIMITED, Budget

_FEATURES = {  # a JSON value's type: its field in a tf.train.Feature and its type there
    str: ("bytes_list", tf.string),
    dict: ("bytes_list", tf.string),
    int: ("int64_list", tf.int64),
    float: ("float_list", tf.float32),
}


def read_inputs(document: Mapping[str, Any], signature: SignatureDef) -> dict[str, TensorProto]:
    """Returns a tensor for each input of `signature` that the document has, by name."""
    if "instances" in document and "inputs" in document:
        raise invalid_argument(
            f"JSON Value: {shown(document)} Not formatted correctly expecting only one of "
            "'inputs' or 'instances' keys to exist"
        )
    names, needed = sorted(signature.inputs), sorted(set(signature.inputs) - {*signature.defaults})
    if "instances" in document:
        columns = _columns_of_rows(document["instances"], names, needed)
    elif "inputs" in document:
        columns = _columns(document["inputs"], names, needed)
    else:
        raise invalid_argument("Missing 'inputs' or 'instances' key")
    return {
        name: _tensor(name, columns[name], signature.inputs[name].dtype)
        for name in names
        if name in columns
    }


def read_examples(document: Mapping[str, Any], budget: Budget = UNLIMITED) -> Input:
    """Returns the tf.Examples of a request to classify or to regress."""
    examples = document.get("examples")
    if not isinstance(examples, list) or not examples:
        raise invalid_argument(
            f"Expected 'examples' to be a list of at least one object; received {shown(examples)}"
        )
    # Before they are read: an example takes many times the memory of its JSON.
    budget.check_rows("Input", len(examples))
    found = [_example(each) for each in examples]
    if "context" not in document:
        return Input(example_list=ExampleList(examples=found))
    context = _example(document["context"])
    return Input(example_list_with_context=ExampleListWithContext(examples=found, context=context))


def _example(features: Any) -> tf.train.Example:
    """Returns a tf.Example of an object of features, each a value or a list of one type."""
    if not isinstance(features, dict):
        raise invalid_argument(f"Expected an example to be an object; received {shown(features)}")
    example = tf.train.Example()
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        field, dtype = _FEATURES.get(type(values[0]), _FEATURES[str]) if values else _FEATURES[str]
        typed = [_typed(name, each, dtype) for each in values]
        feature = example.features.feature[name]
        getattr(feature, field).value.extend(typed)
    return example


def _columns_of_rows(rows: Any, names: list[str], needed: list[str]) -> dict[str, list[Any]]:
    """Returns each input's values in all rows; a row is an object, or the only input's value."""
    if not isinstance(rows, list) or not rows:
        raise invalid_argument(
            f"Expected 'instances' to be a list of at least one value; received {shown(rows)}"
        )
    if len(names) == 1 and not any(_is_object(row) for row in rows):
        return {names[0]: rows}
    expected = set(names)
    if _is_object(rows[0]) and set(needed) <= set(rows[0]) <= expected:
        expected = set(rows[0])
    for index, row in enumerate(rows):
        if not _is_object(row) or set(row) != expected:
            raise invalid_argument(
                f"Expected all 'instances' to be objects with the keys {set_of(expected)}; "
                f"at {index} received {shown(row)}"
            )
    return {name: [row[name] for row in rows] for name in expected}


def _columns(inputs: Any, names: list[str], needed: list[str]) -> dict[str, Any]:
    """Returns each input's value; `inputs` is an object, or the only input's value."""
    if len(names) == 1 and not _is_object(inputs):
        return {names[0]: inputs}
    if not _is_object(inputs) or not set(needed) <= set(inputs):
        raise invalid_argument(
            f"Expected 'inputs' to be an object with the keys {set_of(needed)}; "
            f"received {shown(inputs)}"
        )
    return inputs


def _is_object(value: Any) -> bool:
    """Returns whether a value is an object of names, not `{"b64": ...}`, which is bytes."""
    return isinstance(value, dict) and set(value) != {BASE64_KEY}


def _tensor(name: str, value: Any, dtype: int) -> TensorProto:
    """Returns nested lists, or a single value, as a tensor."""
    shape, values = _flattened(value)
    dims = [TensorShapeProto.Dim(size=size) for size in shape]
    tensor = TensorProto(dtype=dtype, tensor_shape=TensorShapeProto(dim=dims))
    found = tf.as_dtype(dtype)
    typed = (_typed(name, each, found) for each in values)
    if found == tf.string:
        tensor.string_val.extend(typed)
    else:
        tensor.tensor_content = np.array(list(typed), found.as_numpy_dtype).tobytes()
    return tensor


def _flattened(value: Any) -> tuple[list[int], list[Any]]:
    """Returns the shape of nested lists and the values in them.

    If lists differ in length or are nested too deeply, they are themselves the values, and `_typed`
    refuses them.
    """
    shape: list[int] = []
    values = [value]
    while values and isinstance(values[0], list) and len(shape) < MAX_DIMENSIONS:
        size = len(values[0])
        if any(not isinstance(each, list) or len(each) != size for each in values):
            break
        shape.append(size)
        values = list(itertools.chain.from_iterable(values))
    return shape, values


def _typed(name: str, value: Any, dtype: tf.DType) -> Any:
    """Returns a JSON value as a value of a tensor of `dtype`."""
    try:
        if dtype == tf.string and isinstance(value, str):
            return value.encode()
        if dtype == tf.string and isinstance(value, dict) and set(value) == {BASE64_KEY}:
            text = "".join(value[BASE64_KEY].split())  # many encoders write lines
            return base64.b64decode(text + -len(text) % 4 * "=", validate=True)
    except (AttributeError, ValueError) as error:  # not base64
        raise invalid_argument(f"Input {name}: {shown(value)}: {error}") from error
    if dtype == tf.bool and isinstance(value, bool):
        return value
    kinds, least, most = _numbers(dtype)
    if type(value) in kinds and (
        least <= value <= most or isinstance(value, float) and not math.isfinite(value)
    ):
        return value
    raise invalid_argument(
        f"Input {name}: JSON Value: {shown(value)} is not of expected type: "
        f"{type_name(dtype.as_datatype_enum)}"
    )


@functools.cache
def _numbers(dtype: tf.DType) -> tuple[tuple[type, ...], float, float]:
    """Returns the types of numbers that a dtype holds, the least and the most.

    The bounds are Python numbers, which can be compared with integers of any length.
    """
    if dtype.is_integer:
        return (int,), int(dtype.min), int(dtype.max)
    if dtype.is_floating:
        return (int, float), -float(dtype.max), float(dtype.max)
    return (), 0, 0

"""TensorFlow Serving's REST interface: its calls, and their JSON.

POST /v1/models/NAME[/versions/V|/labels/L]:predict    {"instances": [...]} or {"inputs": ...}
POST /v1/models/NAME[/versions/V|/labels/L]:classify   {"examples": [...]}; so does :regress
GET  /v1/models/NAME[/versions/V|/labels/L]            the status of the model's versions
GET  /v1/models/NAME[/versions/V|/labels/L]/metadata   its signatures
"""

import base64
import functools
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np
import tensorflow as tf
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest, ClassificationResult
from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap
from tensorflow_serving.apis.input_pb2 import ExampleList, ExampleListWithContext, Input
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.regression_pb2 import RegressionRequest, RegressionResult

from serving.export_names import DEFAULT_SIGNATURE
from serving.plain_values import plain
from serving.server import inference
from serving.server.errors import invalid_argument, set_of, type_name
from serving.server.inference import Resources
from serving.server.limits import MAX_DIMENSIONS, UNLIMITED, Budget
from serving.server.models.servable import Servable

_MODEL = r"/v1/models/([^/:]+)(?:/versions/([0-9]{1,19})|/labels/([^/:]+))?"
_MAX_VERSION = 2**63 - 1
_PATHS = {
    "GET": re.compile(_MODEL + "(?:/(metadata))?", re.IGNORECASE),
    "POST": re.compile(_MODEL + ":(predict|classify|regress)", re.IGNORECASE),
}

_BASE64_KEY = "b64"  # the key of an object that stands for bytes
_MAX_SHOWN_CHARS = 512
_ENCODER = json.JSONEncoder(indent=4, ensure_ascii=False)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Text up to an escape that stands for half a character. The quantifiers are possessive, so that
# matching a long text needs no memory for going back.
_UP_TO_LONE_SURROGATE = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+",
    re.DOTALL,
)

_FEATURES = {  # a JSON value's type: its field in a tf.train.Feature and its type there
    str: ("bytes_list", tf.string),
    dict: ("bytes_list", tf.string),
    int: ("int64_list", tf.int64),
    float: ("float_list", tf.float32),
}
_BASE64_OUTPUT_SUFFIX = "_bytes"
# Writing this many elements takes some 10 milliseconds, in which other threads wait for Python's
# interpreter.
_PIECE = 2**13
_REPLY_ENCODER = json.JSONEncoder(ensure_ascii=False)


class RestCalls:
    """Answers REST requests about a server's models.

    Args:
        timeout: seconds that a request may take after it is received; None for no limit.
    """

    def __init__(self, resources: Resources, timeout: float | None) -> None:
        self._resources = resources
        self._timeout = timeout

    def answer(self, method: str, path: str, body: bytes) -> bytes:
        """Returns the reply to a `GET` or `POST` of a path, a JSON document."""
        resources = self._resources
        budget = Budget(resources.limits, self._timeout)
        path = path.partition("?")[0]
        match = _PATHS[method].fullmatch(path)
        name, version, label, verb = match.groups() if match else ("", None, None, "")
        if match is None or int(version or 0) > _MAX_VERSION:
            raise invalid_argument(f"Malformed request: {method} {path}")
        spec = ModelSpec(name=unquote(name))
        if version:
            spec.version.value = int(version)
        if label:
            spec.version_label = unquote(label)

        models, verb = resources.models, (verb or "").lower()
        with resources.measured(verb, "REST") as measured:
            if method == "GET":
                found = _metadata(models.find(spec)) if verb else _to_dict(models.status(spec))
                return encoded(json.dumps(found, ensure_ascii=False))
            measured.model_name = spec.name
            with resources.admission.admitted(budget):
                document = parse_document(body)
                reply = _VERBS[verb](models.find(spec), document, budget)
        return encoded(reply)


def _predict(servable: Servable, document: Mapping[str, Any], budget: Budget) -> str:
    name = read_signature_name(document)
    signature = servable.signature_defs.get(name)
    if signature is None:
        raise invalid_argument(f'Serving signature name: "{name}" not found in signature def')
    inputs = read_inputs(document, signature)
    outputs = servable.predict(name, inputs, budget=budget)
    return write_outputs(document, outputs, budget)


def _classify(servable: Servable, document: Mapping[str, Any], budget: Budget) -> str:
    request = ClassificationRequest(input=read_examples(document, budget))
    request.model_spec.signature_name = read_signature_name(document)
    result = inference.classify(servable, request, budget).result
    return write_classifications(result, budget)


def _regress(servable: Servable, document: Mapping[str, Any], budget: Budget) -> str:
    request = RegressionRequest(input=read_examples(document, budget))
    request.model_spec.signature_name = read_signature_name(document)
    result = inference.regress(servable, request, budget).result
    return write_regressions(result)


_VERBS = {"predict": _predict, "classify": _classify, "regress": _regress}


def _metadata(servable: Servable) -> Mapping[str, Any]:
    response = inference.get_model_metadata(servable)
    signatures = SignatureDefMap()
    response.metadata[inference.SIGNATURE_DEF].Unpack(signatures)
    return {
        "model_spec": _to_dict(response.model_spec),
        "metadata": {inference.SIGNATURE_DEF: _to_dict(signatures)},
    }


def _to_dict(message: Message) -> Mapping[str, Any]:
    """Returns a message with all of its fields, as TensorFlow Serving writes them."""
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def parse_document(body: bytes) -> dict[str, Any]:
    """Returns the JSON object in a request's body.

    It has to be UTF-8, as RFC 8259 says. TensorFlow Serving takes other bytes as well, but then a
    text in another encoding gets an answer as if it were read.
    """
    if not body:
        raise invalid_argument("JSON Parse error: The document is empty")
    if _SURROGATE.search(body):
        found = _UP_TO_LONE_SURROGATE.match(body)
        if found and found.end() < len(body):
            raise invalid_argument(
                "JSON Parse error: The surrogate pair in string is invalid. at offset: "
                f"{found.end()}"
            )
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise invalid_argument(
            f"JSON Parse error: Expected UTF-8, received the byte 0x{body[error.start]:02x} at "
            f"offset: {error.start}"
        ) from error
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode())
        raise invalid_argument(f"JSON Parse error: {error.msg} at offset: {offset}") from error
    except ValueError as error:  # a number of thousands of digits
        raise invalid_argument(f"JSON Parse error: {error}") from error
    except RecursionError as error:
        raise invalid_argument("JSON Parse error: lists or objects nested too deeply") from error
    if not isinstance(document, dict):
        raise invalid_argument(f"JSON Value: {_shown(document)} Is not object")
    return document


def read_signature_name(document: Mapping[str, Any]) -> str:
    """Returns the name of the signature that a document asks for, or of the default one."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid_argument(f"'signature_name' is not a string but {_shown(name)}")
    return name or DEFAULT_SIGNATURE


def _shown(value: Any) -> str:
    """Returns a JSON value for a message, cut so that the rest of the message can be seen.

    The rest of the value is not even formatted: it may be a thousand times longer than the request.
    """
    pieces, length = [], 0
    for piece in _ENCODER.iterencode(value):
        pieces.append(piece[:_MAX_SHOWN_CHARS])
        length += len(piece)
        if length > _MAX_SHOWN_CHARS:
            return "".join(pieces)[:_MAX_SHOWN_CHARS] + "..."
    return "".join(pieces)


def read_inputs(document: Mapping[str, Any], signature: SignatureDef) -> dict[str, TensorProto]:
    """Returns a tensor for each input of `signature` that the document has, by name."""
    if "instances" in document and "inputs" in document:
        raise invalid_argument(
            f"JSON Value: {_shown(document)} Not formatted correctly expecting only one of "
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
            f"Expected 'examples' to be a list of at least one object; received {_shown(examples)}"
        )
    # Before they are read: an example takes many times the memory of its JSON.
    budget.check_rows("Input", len(examples))
    found = [_example(each) for each in examples]
    if "context" not in document:
        return Input(example_list=ExampleList(examples=found))
    context = _example(document["context"])
    return Input(example_list_with_context=ExampleListWithContext(examples=found, context=context))


def _example(features: Any) -> tf.train.Example:
    if not isinstance(features, dict):
        raise invalid_argument(f"Expected an example to be an object; received {_shown(features)}")
    example = tf.train.Example()
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        field, dtype = _FEATURES.get(type(values[0]), _FEATURES[str]) if values else _FEATURES[str]
        typed = [_typed(name, each, dtype) for each in values]
        feature = example.features.feature[name]
        getattr(feature, field).value.extend(typed)
    return example


def _columns_of_rows(rows: Any, names: list[str], needed: list[str]) -> dict[str, list[Any]]:
    if not isinstance(rows, list) or not rows:
        raise invalid_argument(
            f"Expected 'instances' to be a list of at least one value; received {_shown(rows)}"
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
                f"at {index} received {_shown(row)}"
            )
    return {name: [row[name] for row in rows] for name in expected}


def _columns(inputs: Any, names: list[str], needed: list[str]) -> dict[str, Any]:
    if len(names) == 1 and not _is_object(inputs):
        return {names[0]: inputs}
    if not _is_object(inputs) or not set(needed) <= set(inputs):
        raise invalid_argument(
            f"Expected 'inputs' to be an object with the keys {set_of(needed)}; "
            f"received {_shown(inputs)}"
        )
    return inputs


def _is_object(value: Any) -> bool:
    """Returns whether a value is an object of names, not `{"b64": ...}`, which is bytes."""
    return isinstance(value, dict) and set(value) != {_BASE64_KEY}


def _tensor(name: str, value: Any, dtype: int) -> TensorProto:
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
    try:
        if dtype == tf.string and isinstance(value, str):
            return value.encode()
        if dtype == tf.string and isinstance(value, dict) and set(value) == {_BASE64_KEY}:
            text = "".join(value[_BASE64_KEY].split())  # many encoders write lines
            return base64.b64decode(text + -len(text) % 4 * "=", validate=True)
    except (AttributeError, ValueError) as error:  # not base64
        raise invalid_argument(f"Input {name}: {_shown(value)}: {error}") from error
    if dtype == tf.bool and isinstance(value, bool):
        return value
    kinds, least, most = _numbers(dtype)
    if type(value) in kinds and (
        least <= value <= most or isinstance(value, float) and not math.isfinite(value)
    ):
        return value
    raise invalid_argument(
        f"Input {name}: JSON Value: {_shown(value)} is not of expected type: "
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


def write_outputs(
    document: Mapping[str, Any], outputs: Mapping[str, np.ndarray], budget: Budget = UNLIMITED
) -> str:
    """Returns the reply to a request to predict."""
    by_row = "instances" in document
    batch_sizes = {array.shape[:1] for array in outputs.values()}
    if by_row and (len(batch_sizes) != 1 or () in batch_sizes):
        shapes = {name: list(array.shape) for name, array in outputs.items()}
        raise invalid_argument(f"Expected outputs of one batch size; the signature gave {shapes}")
    if not by_row:
        columns = {name: _value(name, array, budget) for name, array in outputs.items()}
        return _object({"outputs": _object(columns) if len(columns) != 1 else columns.popitem()[1]})
    rows = {name: _rows(name, array, budget) for name, array in outputs.items()}
    if len(rows) == 1:
        predictions = rows.popitem()[1]
    else:
        predictions = [_object(dict(zip(rows, row))) for row in zip(*rows.values())]
    return _object({"predictions": _list(predictions)})


def write_classifications(result: ClassificationResult, budget: Budget = UNLIMITED) -> str:
    """Returns the reply to a request to classify: for each example, pairs of label and score."""
    rows = []
    for row in result.classifications:
        budget.check_time()
        rows.append(
            _REPLY_ENCODER.encode([[each.label, _short(each.score)] for each in row.classes])
        )
    return _object({"results": _list(rows)})


def write_regressions(result: RegressionResult) -> str:
    """Returns the reply to a request to regress: a number for each example."""
    return _REPLY_ENCODER.encode({"results": [_short(each.value) for each in result.regressions]})


def encoded(reply: str) -> bytes:
    """Returns a reply's bytes. Strings that are not UTF-8 are sent byte for byte as they came."""
    return reply.encode(errors="surrogateescape")


def _value(name: str, array: np.ndarray, budget: Budget) -> str:
    return (
        _list(_rows(name, array, budget))
        if array.ndim
        else _REPLY_ENCODER.encode(_plain(name, array))
    )


def _rows(name: str, array: np.ndarray, budget: Budget) -> list[str]:
    """Returns the rows of an output in JSON, written in pieces, between which time is checked."""
    size = _PIECE // max(1, array[:1].size)
    if not size:  # a row is longer than a piece
        return [_value(name, row, budget) for row in array]
    rows: list[str] = []
    for start in range(0, len(array), size):
        budget.check_time()
        rows += map(_REPLY_ENCODER.encode, _plain(name, array[start : start + size]))
    return rows


def _object(members: Mapping[str, str]) -> str:
    """Returns an object in JSON, whose members are in JSON."""
    return (
        "{" + ", ".join(f"{_REPLY_ENCODER.encode(name)}: {members[name]}" for name in members) + "}"
    )


def _list(items: Iterable[str]) -> str:
    """Returns a list in JSON, whose items are in JSON."""
    return "[" + ", ".join(items) + "]"


def _plain(name: str, array: np.ndarray) -> Any:
    if array.dtype == object:
        encode = _base64_object if name.endswith(_BASE64_OUTPUT_SUFFIX) else _text
        return np.vectorize(encode, otypes=[object])(array).tolist()
    return plain(array)


def _short(number: float) -> float:
    """Returns the shortest decimal for a float32."""
    return float(str(np.float32(number)))


def _base64_object(value: bytes) -> dict[str, str]:
    return {_BASE64_KEY: base64.b64encode(value).decode()}


def _text(value: bytes) -> str:
    """Returns bytes as a string, with surrogates for what is not UTF-8."""
    return value.decode(errors="surrogateescape")

"""Writes replies of the REST interface: from outputs to JSON documents.

A reply to predict has the request's orientation: rows, `{"predictions": [...]}`, or columns,
`{"outputs": ...}`. The output's name is left out where there is only one. The reply to classify or
to regress is `{"results": [...]}`.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from tensorflow_serving.apis.classification_pb2 import ClassificationResult
from tensorflow_serving.apis.regression_pb2 import RegressionResult

from serving.plain_values import plain
from serving.server.calls.json_documents import BASE64_KEY
from serving.server.errors import invalid_argument
from serving.server.limits.budget import UNLIMITED, Budget

_BASE64_OUTPUT_SUFFIX = "_bytes"
# Writing this many elements takes some 10 milliseconds, in which other threads wait for Python's
# interpreter.
_PIECE = 2**13
_ENCODER = json.JSONEncoder(ensure_ascii=False)


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
        rows.append(_ENCODER.encode([[each.label, _short(each.score)] for each in row.classes]))
    return _object({"results": _list(rows)})


def write_regressions(result: RegressionResult) -> str:
    """Returns the reply to a request to regress: a number for each example."""
    return _ENCODER.encode({"results": [_short(each.value) for each in result.regressions]})


def encoded(reply: str) -> bytes:
    """Returns a reply's bytes. Strings that are not UTF-8 are sent byte for byte as they came."""
    return reply.encode(errors="surrogateescape")


def _value(name: str, array: np.ndarray, budget: Budget) -> str:
    """Returns an output in JSON."""
    return _list(_rows(name, array, budget)) if array.ndim else _ENCODER.encode(_plain(name, array))


def _rows(name: str, array: np.ndarray, budget: Budget) -> list[str]:
    """Returns the rows of an output in JSON, written in pieces, between which time is checked."""
    size = _PIECE // max(1, array[:1].size)
    if not size:  # a row is longer than a piece
        return [_value(name, row, budget) for row in array]
    rows: list[str] = []
    for start in range(0, len(array), size):
        budget.check_time()
        rows += map(_ENCODER.encode, _plain(name, array[start : start + size]))
    return rows


def _object(members: Mapping[str, str]) -> str:
    """Returns an object in JSON, whose members are in JSON."""
    return "{" + ", ".join(f"{_ENCODER.encode(name)}: {members[name]}" for name in members) + "}"


def _list(items: Iterable[str]) -> str:
    """Returns a list in JSON, whose items are in JSON."""
    return "[" + ", ".join(items) + "]"


def _plain(name: str, array: np.ndarray) -> Any:
    """Returns an output's values as nested lists that JSON can hold."""
    if array.dtype == object:
        encode = _base64_object if name.endswith(_BASE64_OUTPUT_SUFFIX) else _text
        return np.vectorize(encode, otypes=[object])(array).tolist()
    return plain(array)


def _short(number: float) -> float:
    """Returns the shortest decimal for a float32."""
    return float(str(np.float32(number)))


def _base64_object(value: bytes) -> dict[str, str]:
    """Returns bytes as TensorFlow Serving writes them in JSON."""
    return {BASE64_KEY: base64.b64encode(value).decode()}


def _text(value: bytes) -> str:
    """Returns bytes as a string, with surrogates for what is not UTF-8."""
    return value.decode(errors="surrogateescape")

"""Writes replies of the REST interface: from outputs to JSON documents.

A reply to predict has the request's orientation: rows, `{"predictions": [...]}`, or columns,
`{"outputs": ...}`. The output's name is left out where there is only one. The reply to classify or
to regress is `{"results": [...]}`.
"""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from tensorflow_serving.apis.classification_pb2 import ClassificationResult
from tensorflow_serving.apis.regression_pb2 import RegressionResult

from serving.server.calls.json_documents import BASE64_KEY
from serving.server.errors import invalid_argument

_BASE64_OUTPUT_SUFFIX = "_bytes"


def write_outputs(document: Mapping[str, Any], outputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns the reply to a request to predict.

    Args:
        document: the request.
        outputs: the signature's outputs by name; strings are arrays of `bytes` objects.

    Raises:
        ServingError: rows were asked for, and the outputs are not batches of one size.
    """
    columns = {name: _plain(name, array) for name, array in outputs.items()}
    by_row = "instances" in document
    batch_sizes = {array.shape[:1] for array in outputs.values()}
    if by_row and (len(batch_sizes) != 1 or () in batch_sizes):
        shapes = {name: list(array.shape) for name, array in outputs.items()}
        raise invalid_argument(f"Expected outputs of one batch size; the signature gave {shapes}")
    reply: Any = columns
    if len(columns) == 1:
        reply = next(iter(columns.values()))
    elif by_row:
        reply = [dict(zip(columns, row)) for row in zip(*columns.values())]
    return {"predictions" if by_row else "outputs": reply}


def write_classifications(result: ClassificationResult) -> dict[str, Any]:
    """Returns the reply to a request to classify: for each example, pairs of label and score."""
    return {
        "results": [
            [[each.label, _short(each.score)] for each in row.classes]
            for row in result.classifications
        ]
    }


def write_regressions(result: RegressionResult) -> dict[str, Any]:
    """Returns the reply to a request to regress: a number for each example."""
    return {"results": [_short(each.value) for each in result.regressions]}


def _plain(name: str, array: np.ndarray) -> Any:
    """Returns an output's values as nested lists that JSON can hold."""
    if array.dtype == object:
        encode = _base64_object if name.endswith(_BASE64_OUTPUT_SUFFIX) else _text
        return np.vectorize(encode, otypes=[object])(array).tolist()
    if np.issubdtype(array.dtype, np.floating):
        # Through text, a float32 becomes its shortest decimal, such as 0.9, not 0.8999999761581421.
        return array.astype(str).astype(float).tolist()
    return array.tolist()


def _short(number: float) -> float:
    """Returns the shortest decimal for a float32."""
    return float(str(np.float32(number)))


def _base64_object(value: bytes) -> dict[str, str]:
    """Returns bytes as TensorFlow Serving writes them in JSON."""
    return {BASE64_KEY: base64.b64encode(value).decode()}


def _text(value: bytes) -> str:
    """Returns bytes as a string, with surrogates for what is not UTF-8."""
    return value.decode(errors="surrogateescape")

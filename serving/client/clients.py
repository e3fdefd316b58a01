"""Clients of model servers: their interface, and the one over REST, which needs no TensorFlow."""

import base64
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

TIMEOUT_SECONDS = 60.0


class QueryError(Exception):
    """The question does not fit the model, or the server did not answer."""


class Model(NamedTuple):
    """A model by its name, and one of its versions by its number or its label; else the newest."""

    name: str
    version: int | None = None
    label: str | None = None


class Input(NamedTuple):
    """An input of a signature.

    Attributes:
        dtype: the name of its DataType.
        rank: its number of dimensions, if known.
        has_default: whether a request may leave it out.
    """

    dtype: str
    rank: int | None
    has_default: bool = False


class Client(Protocol):
    """Asks one signature of one model on a server."""

    def inputs(self) -> Mapping[str, Input]:
        """Returns the signature's inputs by name, as the server describes them.

        Raises:
            QueryError: the model does not have it, or the server did not answer.
        """

    def predict(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the outputs for inputs. Call it after `inputs`.

        Args:
            inputs: nested lists of numbers, strings or bytes, by name.

        Returns:
            Nested lists of numbers or strings, by name.

        Raises:
            QueryError: the inputs do not fit the signature, or the server did not answer.
        """


class RestClient:
    """See `Client`."""

    def __init__(self, target: str, model: Model, signature: str) -> None:
        self._url = f"{target.rstrip('/')}/v1/models/{quote(model.name, safe='')}"
        if model.version is not None:
            self._url += f"/versions/{model.version}"
        elif model.label is not None:
            self._url += f"/labels/{quote(model.label, safe='')}"
        self._name = signature
        self._outputs: Sequence[str] = []

    def inputs(self) -> Mapping[str, Input]:
        reply = self._ask("/metadata")
        signatures = reply["metadata"]["signature_def"]["signature_def"]
        if self._name not in signatures:
            raise QueryError(f"The model has no signature {self._name}, only {sorted(signatures)}")
        found = signatures[self._name]
        self._outputs = sorted(found["outputs"])
        defaults = found.get("defaults", {})
        return {
            name: Input(info["dtype"], _rank(info), name in defaults)
            for name, info in found["inputs"].items()
        }

    def predict(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        document = {"signature_name": self._name, "inputs": _json_value(inputs)}
        outputs = self._ask(":predict", document)["outputs"]
        return outputs if len(self._outputs) > 1 else {self._outputs[0]: outputs}

    def _ask(self, path: str, document: Mapping[str, Any] | None = None) -> Any:
        body = None if document is None else json.dumps(document).encode()
        try:
            with urllib.request.urlopen(self._url + path, body, TIMEOUT_SECONDS) as response:
                return json.loads(response.read().decode(errors="replace"))
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            try:
                text = json.loads(text)["error"]
            except (ValueError, KeyError, TypeError):
                pass  # another program than a model server replied
            raise QueryError(f"HTTP {error.code}: {text}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise QueryError(f"Cannot ask {self._url}: {error}") from error


def _rank(info: Mapping[str, Any]) -> int | None:
    shape = info["tensor_shape"]
    return None if shape["unknown_rank"] else len(shape["dim"])


def _json_value(value: Any) -> Any:
    """Returns a value that JSON can hold: bytes as text, or in base64 if they are not UTF-8."""
    if isinstance(value, Mapping):
        return {name: _json_value(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    return value

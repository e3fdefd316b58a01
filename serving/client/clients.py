"""Clients for one signature of one model on a server, over REST or gRPC, with the same calls."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

TIMEOUT_SECONDS = 60.0


class QueryError(Exception):
    """A question that does not fit the model, or that the server did not answer."""


class Input(NamedTuple):
    """An input of a signature: the name of its DataType, and its number of dimensions if known."""

    dtype: str
    rank: int | None


@dataclass(frozen=True)
class Signature:
    """What a signature takes and gives, by name."""

    inputs: Mapping[str, Input]
    outputs: Sequence[str]


class Client(Protocol):
    """Asks one signature of one model."""

    def signature(self) -> Signature:
        """Returns the signature as the server describes it."""

    def predict(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the outputs for inputs: nested lists of numbers, strings or bytes, by name."""


def connect(target: str, model: str, signature: str) -> AbstractContextManager[Client]:
    """Returns a client to be entered as a context.

    Args:
        target: `http://host:port` for REST; `host:port`, or what else gRPC takes, for gRPC.
        model: the model's name.
        signature: the signature's name.

    Raises:
        QueryError: from the client's calls.
    """
    if target.startswith(("http://", "https://")):
        return nullcontext(_RestClient(target, model, signature))
    # Imported here, as it takes all of TensorFlow, which REST does without.
    from serving.client.grpc_client import open_client

    return open_client(target, model, signature)


class _RestClient:
    def __init__(self, target: str, model: str, signature: str) -> None:
        self._url = f"{target.rstrip('/')}/v1/models/{quote(model, safe='')}"
        self._name = signature
        self._outputs: Sequence[str] = []

    def signature(self) -> Signature:
        answer = self._ask("/metadata")
        signatures = answer["metadata"]["signature_def"]["signature_def"]
        if self._name not in signatures:
            raise QueryError(f"The model has no signature {self._name}, only {sorted(signatures)}")
        found = signatures[self._name]
        self._outputs = sorted(found["outputs"])
        return Signature(
            {name: Input(info["dtype"], _rank(info)) for name, info in found["inputs"].items()},
            self._outputs,
        )

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
                pass  # not from a model server
            raise QueryError(f"HTTP {error.code}: {text}") from error
        except (OSError, ValueError) as error:
            raise QueryError(f"Cannot ask {self._url}: {error}") from error


def _rank(info: Mapping[str, Any]) -> int | None:
    shape = info["tensor_shape"]
    return None if shape["unknown_rank"] else len(shape["dim"])


def _json_value(value: Any) -> Any:
    """Returns a value as JSON has it: bytes as text, or in base64 where they are none."""
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

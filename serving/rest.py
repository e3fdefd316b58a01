"""TensorFlow Serving's REST interface: predict, model status and model metadata as JSON over HTTP.

POST /v1/models/NAME[/versions/V]:predict    {"instances": [...]} or {"inputs": ...}
GET  /v1/models/NAME[/versions/V]            the status of the model
GET  /v1/models/NAME[/versions/V]/metadata   its signatures
"""

import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from grpc import StatusCode
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest, SignatureDefMap
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest
from tensorflow_serving.apis.model_pb2 import ModelSpec

from serving.grpc_service import SIGNATURE_DEF, get_model_metadata, get_model_status
from serving.rest_json import parse_document, read_inputs, write_outputs
from serving.servable import DEFAULT_SIGNATURE, Servable, ServingError, find, invalid_argument

_MODEL = r"/v1/models/([^/:]+)(?:/versions/([0-9]{1,18})|/labels/([^/:]+))?"
_PATHS = {
    "GET": re.compile(_MODEL + "(?:/(metadata))?", re.IGNORECASE),
    "POST": re.compile(_MODEL + ":(predict|classify|regress)", re.IGNORECASE),
}
_HTTP_STATUS = {
    StatusCode.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    StatusCode.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    StatusCode.OUT_OF_RANGE: HTTPStatus.BAD_REQUEST,
    StatusCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    StatusCode.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    StatusCode.ABORTED: HTTPStatus.CONFLICT,
    StatusCode.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    StatusCode.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    StatusCode.UNIMPLEMENTED: HTTPStatus.NOT_IMPLEMENTED,
    StatusCode.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    StatusCode.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
}
_MAX_BODY_BYTES = 2**31 - 1


class RestServer(ThreadingHTTPServer):
    """Answers REST requests about some servables, each on a thread of its own.

    Raises:
        OSError: nothing can listen at `host`:`port`.
    """

    request_queue_size = 128  # connections that may wait to be accepted

    def __init__(self, servables: Sequence[Servable], host: str, port: int) -> None:
        super().__init__((host, port), _Handler)
        self.servables = servables
        self._in_flight = 0
        self._ended = threading.Condition()

    def start(self) -> None:
        """Starts to accept connections."""
        threading.Thread(target=self.serve_forever, args=[0.1], daemon=True).start()

    def stop(self, grace: float) -> None:
        """Stops accepting and waits, for at most `grace` seconds, for the requests in flight."""
        self.shutdown()
        with self._ended:
            self._ended.wait_for(lambda: self._in_flight == 0, grace)
        self.server_close()

    @contextmanager
    def request_in_flight(self) -> Iterator[None]:
        """Makes `stop` wait for what is done inside."""
        with self._ended:
            self._in_flight += 1
        try:
            yield
        finally:
            with self._ended:
                self._in_flight -= 1
                self._ended.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Reports an unforeseen error, but not that a client went away."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Reads one request, answers it in JSON and closes the connection."""

    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds that a client may take to send its next bytes
    server: RestServer

    def _handle(self) -> None:
        with self.server.request_in_flight():
            try:
                reply = _answer(self.server.servables, self.command, self.path, self._body())
            except ServingError as error:
                status = _HTTP_STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
                self._reply(status, {"error": error.message})
            else:
                self._reply(HTTPStatus.OK, reply)

    do_GET = do_POST = _handle

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not re.fullmatch("[0-9]{1,10}", length):
            raise invalid_argument("Expected a body with a Content-Length, and not in chunks")
        if int(length) > _MAX_BODY_BYTES:
            raise invalid_argument(f"Expected at most {_MAX_BODY_BYTES} bytes, not {length}")
        return self.rfile.read(int(length))

    def _reply(self, status: int, reply: Mapping[str, Any]) -> None:
        # Strings that are not UTF-8 leave byte for byte, as they came.
        body = json.dumps(reply, ensure_ascii=False).encode(errors="surrogateescape")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        # A connection kept open would hold its thread, too, between requests.
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers in JSON, too, what the base class refuses."""
        self._reply(code, {"error": message or HTTPStatus(code).phrase})

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


def _answer(
    servables: Sequence[Servable], method: str, path: str, body: bytes
) -> Mapping[str, Any]:
    """Returns the reply to a request.

    Raises:
        ServingError: the request cannot be answered.
    """
    path = path.partition("?")[0]
    match = _PATHS[method].fullmatch(path)
    if match is None:
        raise invalid_argument(f"Malformed request: {method} {path}")
    name, version, label, verb = match.groups()
    spec = ModelSpec(name=unquote(name))
    if version:
        spec.version.value = int(version)
    if label:
        spec.version_label = unquote(label)

    if method == "GET":
        return _metadata(servables, spec) if verb else _status(servables, spec)
    if verb.lower() != "predict":
        raise ServingError(StatusCode.UNIMPLEMENTED, f"REST {verb} is not implemented")
    try:
        return _predict(servables, spec, body)
    except RecursionError as error:
        raise invalid_argument("JSON Parse error: lists or objects nested too deeply") from error


def _status(servables: Sequence[Servable], spec: ModelSpec) -> Mapping[str, Any]:
    return _to_dict(get_model_status(servables, GetModelStatusRequest(model_spec=spec)))


def _metadata(servables: Sequence[Servable], spec: ModelSpec) -> Mapping[str, Any]:
    request = GetModelMetadataRequest(model_spec=spec, metadata_field=[SIGNATURE_DEF])
    response = get_model_metadata(servables, request)
    signatures = SignatureDefMap()
    response.metadata[SIGNATURE_DEF].Unpack(signatures)
    return {
        "model_spec": _to_dict(response.model_spec),
        "metadata": {SIGNATURE_DEF: _to_dict(signatures)},
    }


def _to_dict(message: Message) -> Mapping[str, Any]:
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _predict(servables: Sequence[Servable], spec: ModelSpec, body: bytes) -> Mapping[str, Any]:
    document = parse_document(body)
    signature_name = document.get("signature_name", "")
    if not isinstance(signature_name, str):
        raise invalid_argument(f"'signature_name' is not a string but {signature_name!r}")
    signature_name = signature_name or DEFAULT_SIGNATURE
    servable = find(servables, spec)
    signature = servable.signature(signature_name)
    if signature is None:
        raise invalid_argument(
            f'Serving signature name: "{signature_name}" not found in signature def'
        )
    outputs = servable.predict(signature_name, read_inputs(document, signature))
    return write_outputs(document, outputs)

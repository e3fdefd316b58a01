"""TensorFlow Serving's REST interface: JSON over HTTP.

POST /v1/models/NAME[/versions/V|/labels/L]:predict    {"instances": [...]} or {"inputs": ...}
POST /v1/models/NAME[/versions/V|/labels/L]:classify   {"examples": [...]}; so does :regress
GET  /v1/models/NAME[/versions/V|/labels/L]            the status of the model's versions
GET  /v1/models/NAME[/versions/V|/labels/L]/metadata   its signatures
"""

import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from grpc import StatusCode
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

from serving.layout import DEFAULT_SIGNATURE
from serving.server import inference, metrics, rest_json
from serving.server.model_manager import ModelManager
from serving.server.servable import Servable, ServingError, invalid_argument

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
_LINGER_SECONDS = 2.0


class RestServer(ThreadingHTTPServer):
    """Answers REST requests about some models, each connection on a thread of its own.

    Args:
        models: the models.
        address: the host and the port to listen at.
        timeout: seconds that the model may take to answer a request; 0 for no limit.
        max_body_bytes: the length of the longest request that is read.
        metrics_path: where the metrics page is, if there is one.

    Raises:
        OSError: nothing can listen at the address.
    """

    request_queue_size = 128  # connections that may wait to be accepted

    def __init__(
        self,
        models: ModelManager,
        address: tuple[str, int],
        timeout: float,
        max_body_bytes: int,
        metrics_path: str | None,
    ) -> None:
        super().__init__(address, _Handler)
        self.models = models
        self.answer_timeout = timeout or None
        self.max_body_bytes = max_body_bytes
        self.metrics_path = metrics_path
        self.stopping = False
        self._in_flight = 0
        self._ended = threading.Condition()

    def start(self) -> None:
        """Starts to accept connections."""
        threading.Thread(target=self.serve_forever, args=[0.1], daemon=True).start()

    def stop(self, grace: float) -> None:
        """Stops accepting and waits, for at most `grace` seconds, for the requests in flight."""
        self.stopping = True
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
    """Reads the requests of one connection and answers them in JSON."""

    protocol_version = default_request_version = "HTTP/1.1"
    timeout = 30  # seconds that a client may take to send its next bytes
    disable_nagle_algorithm = True  # the answer leaves in two pieces, and the second must not wait
    server: RestServer

    def _handle(self) -> None:
        with self.server.request_in_flight():
            try:
                body = self._body()
                if self.command == "GET" and self.path == self.server.metrics_path:
                    self._reply(HTTPStatus.OK, metrics.page(), metrics.CONTENT_TYPE)
                else:
                    reply = _answer(self.server, self.command, self.path, body)
                    self._reply_json(HTTPStatus.OK, reply)
            except ServingError as error:
                status = _HTTP_STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
                self._reply_json(status, {"error": error.message})

    do_GET = do_POST = _handle

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        limit = self.server.max_body_bytes
        try:
            if "Transfer-Encoding" in self.headers or not re.fullmatch("[0-9]{1,18}", length):
                raise invalid_argument("Expected a body with a Content-Length, and not in chunks")
            if int(length) > limit:
                raise invalid_argument(f"Expected a body of at most {limit} bytes, not {length}")
        except ServingError:
            self.close_connection = True  # where the next request begins is not known
            raise
        return self.rfile.read(int(length))

    def _reply_json(self, status: int, reply: Mapping[str, Any]) -> None:
        # Strings that are not UTF-8 leave byte for byte, as they came.
        body = json.dumps(reply, ensure_ascii=False).encode(errors="surrogateescape")
        self._reply(status, body, "application/json")

    def _reply(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection or self.server.stopping:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers in JSON, too, what the base class refuses."""
        self.close_connection = True
        self._reply_json(code, {"error": message or HTTPStatus(code).phrase})

    def finish(self) -> None:
        """Ends the connection, but not while the client still sends: it would lose the answer."""
        super().finish()
        end = time.monotonic() + _LINGER_SECONDS
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(_LINGER_SECONDS)
            while self.connection.recv(2**16) and time.monotonic() < end:
                pass

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


def _answer(server: RestServer, method: str, path: str, body: bytes) -> Mapping[str, Any]:
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

    models, verb = server.models, (verb or "").lower()
    measured = spec.name if method == "POST" and spec.name in models else ""
    with metrics.request_measured(measured, verb, "REST"):
        if method == "GET":
            return _metadata(models.find(spec)) if verb else _to_dict(models.status(spec))
        try:
            document = rest_json.parse_document(body)
            return _VERBS[verb](models.find(spec), document, server.answer_timeout)
        except RecursionError as error:
            raise invalid_argument(
                "JSON Parse error: lists or objects nested too deeply"
            ) from error


def _predict(
    servable: Servable, document: Mapping[str, Any], timeout: float | None
) -> Mapping[str, Any]:
    name = _signature_name(document)
    signature = servable.signature_defs.get(name)
    if signature is None:
        raise invalid_argument(f'Serving signature name: "{name}" not found in signature def')
    inputs = rest_json.read_inputs(document, signature)
    with metrics.runtime_measured(servable.name, "Predict"):
        outputs = servable.predict(name, inputs, timeout=timeout)
    return rest_json.write_outputs(document, outputs)


def _classify(
    servable: Servable, document: Mapping[str, Any], timeout: float | None
) -> Mapping[str, Any]:
    request = ClassificationRequest(input=rest_json.read_examples(document))
    request.model_spec.signature_name = _signature_name(document)
    result = inference.classify(servable, request, timeout).result
    return rest_json.write_classifications(result)


def _regress(
    servable: Servable, document: Mapping[str, Any], timeout: float | None
) -> Mapping[str, Any]:
    request = RegressionRequest(input=rest_json.read_examples(document))
    request.model_spec.signature_name = _signature_name(document)
    result = inference.regress(servable, request, timeout).result
    return rest_json.write_regressions(result)


_VERBS = {"predict": _predict, "classify": _classify, "regress": _regress}


def _signature_name(document: Mapping[str, Any]) -> str:
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid_argument(f"'signature_name' is not a string but {name!r}")
    return name or DEFAULT_SIGNATURE


def _metadata(servable: Servable) -> Mapping[str, Any]:
    response = inference.get_model_metadata(servable)
    signatures = SignatureDefMap()
    response.metadata[inference.SIGNATURE_DEF].Unpack(signatures)
    return {
        "model_spec": _to_dict(response.model_spec),
        "metadata": {inference.SIGNATURE_DEF: _to_dict(signatures)},
    }


def _to_dict(message: Message) -> Mapping[str, Any]:
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )

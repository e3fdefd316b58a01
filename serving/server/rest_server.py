"""HTTP for TensorFlow Serving's REST interface: connections, statuses, the pages."""

import dataclasses
import errno
import ipaddress
import json
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

from grpc import StatusCode

from serving.server import addresses, rest_service
from serving.server.errors import ServingError
from serving.server.http_connection import Head, HttpConnection, HttpError, Reply
from serving.server.inference import Resources
from serving.server.options import Options
from serving.server.page import Page
from serving.server.prometheus_metrics import Metrics
from serving.server.rest_service import RestCalls

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
_CORS_HEADERS = {  # TensorFlow Serving's
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Content-Type",
}
_MAX_CONNECTIONS = 512  # each has a thread and a file descriptor, of which a process may have 1,024
_NO_CONNECTION = b'{"error": "The server has no connection left"}'
_TOO_MANY_CONNECTIONS = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(_NO_CONNECTION), _NO_CONNECTION)
)
_MAX_REFUSED = 64  # connections that are kept until their clients have read that
_REFUSED_SECONDS = 2.0
_POLL_SECONDS = 0.1
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_GONE = (ConnectionError, TimeoutError)  # the client has left, or does not read its reply


class RestServer(ThreadingTCPServer):
    """Answers REST requests about a server's models, each connection on its own thread.

    Args:
        metrics_path: path of the metrics page; None for no page.
        page: the page at `/`; None for no page.

    Raises:
        OSError: the port is in use there, or the address is not of this machine.
    """

    request_queue_size = 128  # connections that may wait to be accepted
    allow_reuse_address = True
    daemon_threads = True

    def __init__(
        self,
        resources: Resources,
        options: Options,
        address: str,
        *,
        metrics_path: str | None,
        page: Page | None,
    ) -> None:
        port = options.rest_api_port
        try:
            self.address_family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
            super().__init__((address, port), BaseRequestHandler)
        except OSError as error:
            where = addresses.with_port(address, port)
            raise OSError(f"Cannot listen for REST on {where}: {error.strerror}") from error
        self._calls = RestCalls(resources, options.rest_api_timeout_in_ms / 1000 or None)
        self._resources = resources
        self._max_body_bytes = options.max_request_bytes
        self._metrics_path = metrics_path
        self._allows_all_origins = options.rest_api_enable_cors_support
        self._page = page
        self._stopping = False
        self._in_flight = 0
        self._ended = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._refused: deque[tuple[float, socket.socket]] = deque()
        self._is_loopback = ipaddress.ip_address(self.socket.getsockname()[0]).is_loopback

    def start(self) -> None:
        """Starts to accept connections."""
        threading.Thread(target=self.serve_forever, args=[_POLL_SECONDS], daemon=True).start()

    def stop(self, grace: float) -> None:
        """Stops listening and waits, for at most `grace` seconds, for the requests in flight."""
        self._stopping = True
        self.shutdown()
        self.server_close()
        self._close_refused(0)
        with self._ended:
            self._ended.wait_for(lambda: self._in_flight == 0, grace)
            idle = list(self._connections)
        for connected in idle:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RD)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a new connection on a thread of its own, unless there are too many."""
        with self._ended:
            is_served = len(self._connections) < _MAX_CONNECTIONS
            if is_served:
                self._connections.add(request)
        if is_served:
            super().process_request(request, client_address)
            return
        # Closed at once, with a request that nobody read, a connection could lose the reply.
        with suppress(OSError):
            request.settimeout(0.0)
            request.sendall(_TOO_MANY_CONNECTIONS)
            request.shutdown(socket.SHUT_WR)
        self._refused.append((time.monotonic() + _REFUSED_SECONDS, request))
        self._close_refused(_MAX_REFUSED)

    def get_request(self) -> Any:
        """Accepts a connection. Without a descriptor for it, waits a little for one."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _NO_DESCRIPTOR:
                time.sleep(_POLL_SECONDS)  # the connection still waits, so this is called again
            raise

    def service_actions(self) -> None:
        """Closes connections that were refused. `serve_forever` calls this again and again."""
        while self._refused and self._refused[0][0] < time.monotonic():
            self._close_refused(len(self._refused) - 1)

    def _close_refused(self, kept: int) -> None:
        while len(self._refused) > kept:
            self.close_request(self._refused.popleft()[1])

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection until it ends."""
        connection = HttpConnection(request, self._max_body_bytes)
        try:
            while self._answer_next(connection):
                pass
        finally:
            connection.finish()
            with self._ended:
                self._connections.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Reports an unforeseen error, unless it is that a client has left."""
        if not isinstance(sys.exc_info()[1], _GONE):
            super().handle_error(request, client_address)

    def _answer_next(self, connection: HttpConnection) -> bool:
        """Answers the next request, if there is one; returns whether another may follow."""
        try:
            head = connection.receive_head()
        except HttpError as error:
            return connection.reply(_refusal(error.status, str(error)), last=True)
        if head is None:
            return False
        if self._stopping:
            refusal = _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "The server is shutting down")
            return connection.reply(refusal, last=True)
        with self._request_in_flight(), self._resources.admission.held() as hold:
            try:
                body = connection.receive_body(hold)
            except HttpError as error:
                return connection.reply(_refusal(error.status, str(error)), last=True)
            except ServingError as error:
                return connection.reply(_error(error), last=True)
            reply = self._answer(head, body)
            return connection.reply(reply, last=self._stopping)

    def _answer(self, head: Head, body: bytes) -> Reply:
        if self._is_loopback and not _is_local(head.host):
            return _refusal(
                HTTPStatus.FORBIDDEN,
                f"Expected localhost or an IP address as the Host, received {head.host[:100]!r}. "
                "This server listens on loopback, and a page elsewhere could give its own name to "
                "this address; a proxy has to set the Host",
            )
        if head.method == "GET" and head.target == self._metrics_path:
            return Reply(HTTPStatus.OK, self._resources.metrics.page(), Metrics.CONTENT_TYPE)
        if self._page and head.method in ("GET", "HEAD") and head.target == "/":
            document = self._page.document(self._resources.models.names())
            return Reply(HTTPStatus.OK, document, Page.CONTENT_TYPE, self._page.headers)
        reply = self._answer_call(head, body)
        if self._allows_all_origins:
            return dataclasses.replace(reply, more_headers=_CORS_HEADERS)
        return reply

    def _answer_call(self, head: Head, body: bytes) -> Reply:
        if head.method == "OPTIONS" and self._allows_all_origins:  # a browser asks whether it may
            if head.origin.startswith(("http://", "https://")):
                return Reply(HTTPStatus.OK, b"", "application/json")
            return _refusal(HTTPStatus.BAD_REQUEST, "Origin header is missing in CORS preflight")
        if head.method not in ("GET", "POST"):
            return _refusal(HTTPStatus.NOT_IMPLEMENTED, f"Unsupported method ({head.method!r})")
        try:
            reply = self._calls.answer(head.method, head.target, body)
            return Reply(HTTPStatus.OK, reply, "application/json")
        except ServingError as error:
            return _error(error)

    @contextmanager
    def _request_in_flight(self) -> Iterator[None]:
        """Makes `stop` wait for the body of a `with` statement."""
        with self._ended:
            self._in_flight += 1
        try:
            yield
        finally:
            with self._ended:
                self._in_flight -= 1
                self._ended.notify_all()


def _is_local(host: str) -> bool:
    """Returns whether a Host is one that no page elsewhere could have: a loopback name or an IP."""
    name = host.lower().removesuffix(".")
    if not name or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _error(error: ServingError) -> Reply:
    status = _HTTP_STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
    return _refusal(status, error.message)


def _refusal(status: int, message: str) -> Reply:
    body = rest_service.encoded(json.dumps({"error": message}, ensure_ascii=False))
    return Reply(status, body, "application/json")

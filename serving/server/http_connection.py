"""One HTTP/1.1 connection: h11 reads its requests and writes the replies.

h11 refuses requests that a proxy and a server could read differently: with two lengths of a body,
malformed header lines, or spaces before a colon. This file also refuses bodies in chunks, which no
client of a model server needs, and other versions of HTTP.
"""

import email.utils
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

import h11

_MAX_HEAD_BYTES = 2**16
_READ_BYTES = 2**16
_IDLE_SECONDS = 30.0  # the most until a client sends its next bytes
_REQUEST_SECONDS = 120.0  # the most from the first to the last byte of a request
_LINGER_SECONDS = 2.0
_PORT = re.compile(":[0-9]*$")  # of a host, where an IPv6 address stands in brackets


class HttpError(Exception):
    """A request is malformed or not accepted here, or was not sent in time."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Head:
    """The head of a request.

    Attributes:
        method: such as `GET`.
        target: the path, with the query.
        length: the body's length, in bytes.
        host: the name that the client knows this server by, without a port; empty if it gives none,
            as only clients of HTTP/1.0 may.
        origin: the site of the page that asks, if a browser sends it; otherwise empty.
    """

    method: str
    target: str
    length: int
    host: str
    origin: str = ""


@dataclass(frozen=True)
class Reply:
    """The reply to a request."""

    status: int
    body: bytes
    content_type: str
    more_headers: Mapping[str, str] = field(default_factory=dict)


class HttpConnection:
    """A connection to a client: a head, its body and the reply to them, again and again.

    Args:
        connected: the socket, which the caller closes.
        max_body_bytes: the length of the longest body that is read.
    """

    def __init__(self, connected: socket.socket, max_body_bytes: int) -> None:
        self._socket = connected
        # A reply is sent in two parts, and the second must not wait.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._max_body_bytes = max_body_bytes
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._method = ""
        self._end: float | None = None  # when the current request must be whole

    def receive_head(self) -> Head | None:
        """Returns the head of the next request; None if the client sends no other.

        Raises:
            HttpError: the head is malformed or not accepted here; the reply has to be the last.
        """
        self._method, self._end = "", None
        event = self._next_event()
        if not isinstance(event, h11.Request):
            return None
        self._method = event.method.decode("ascii")
        headers = dict(event.headers)
        if event.http_version not in (b"1.0", b"1.1"):
            raise HttpError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "Expected HTTP/1.0 or HTTP/1.1")
        if b"transfer-encoding" in headers:
            raise HttpError(
                HTTPStatus.BAD_REQUEST, "Expected a body with a Content-Length, and not in chunks"
            )
        if b"content-encoding" in headers:
            raise HttpError(
                HTTPStatus.BAD_REQUEST, "Expected a body as it is, without a Content-Encoding"
            )
        length = int(headers.get(b"content-length", 0))
        if length > self._max_body_bytes:
            raise HttpError(
                HTTPStatus.BAD_REQUEST,
                f"Expected a body of at most {self._max_body_bytes} bytes, not {length}",
            )
        host, origin = (
            headers.get(name, b"").decode(errors="replace") for name in (b"host", b"origin")
        )
        target = event.target.decode(errors="replace")
        return Head(self._method, target, length, _PORT.sub("", host), origin)

    def receive_body(self, hold: Callable[[int], None] = lambda size: None) -> bytes:
        """Returns the body of the request whose head was received.

        Args:
            hold: is called with the length of each part before it is kept, and may raise an error.

        Raises:
            HttpError: the client does not send all of it. After this error, and any of `hold`, the
                reply has to be the last.
        """
        if self._http.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
        body = bytearray()
        while isinstance(event := self._next_event(), h11.Data):
            hold(len(event.data))
            body += event.data
        return bytes(body)

    def reply(self, reply: Reply, last: bool) -> bool:
        """Sends the reply; returns whether another request may follow on this connection."""
        headers = [
            ("Content-Type", reply.content_type),
            ("Content-Length", str(len(reply.body))),
            ("Date", email.utils.formatdate(usegmt=True)),
            *reply.more_headers.items(),
        ]
        if last:
            headers.append(("Connection", "close"))
        phrase = HTTPStatus(reply.status).phrase
        self._send(h11.Response(status_code=reply.status, headers=headers, reason=phrase))
        if self._method != "HEAD":  # a reply to HEAD has no body
            self._send(h11.Data(data=reply.body))
        self._send(h11.EndOfMessage())
        if self._http.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            return False
        self._http.start_next_cycle()
        return True

    def finish(self) -> None:
        """Ends the connection once the client stops sending; earlier, it could lose the reply."""
        end = time.monotonic() + _LINGER_SECONDS
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(_LINGER_SECONDS)
            while self._socket.recv(_READ_BYTES) and time.monotonic() < end:
                pass

    def _next_event(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(self._receive())
        except h11.RemoteProtocolError as error:
            raise HttpError(error.error_status_hint, f"Malformed HTTP: {error}") from error
        return event

    def _receive(self) -> bytes:
        """Returns some bytes, or none if the client has ended its side or is idle."""
        seconds = _IDLE_SECONDS
        if self._end is not None:
            seconds = min(seconds, max(self._end - time.monotonic(), 1e-3))
        self._socket.settimeout(seconds)
        try:
            received = self._socket.recv(_READ_BYTES)
        except TimeoutError as error:
            if self._end is None:
                return b""
            raise HttpError(HTTPStatus.REQUEST_TIMEOUT, "The request took too long") from error
        if self._end is None:
            self._end = time.monotonic() + _REQUEST_SECONDS
        elif time.monotonic() > self._end:
            raise HttpError(HTTPStatus.REQUEST_TIMEOUT, "The request took too long")
        return received

    def _send(self, event: h11.Event) -> None:
        self._socket.settimeout(_IDLE_SECONDS)
        data = self._http.send(event)
        if data:
            self._socket.sendall(data)

"""HTTP that could be read in two ways is refused: another server on the way might read the other.

The expectations are RFC 9112's. The connection is a pair of sockets, without a server.
"""

import contextlib
import socket
import threading

import pytest

from serving.server.http_connection import HttpConnection, HttpError, Reply

HEAD = b"POST /p HTTP/1.1\r\nHost: a\r\n"
NEXT = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"


@contextlib.contextmanager
def connected():
    """A client's and a server's end of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), timeout=30)
        server, _ = listener.accept()
    with client, server:
        yield client, server


@pytest.fixture
def exchange():
    """A function that sends bytes to a connection, and returns requests and the reply's bytes."""

    def run(sent, max_body_bytes=100):
        requests, received = [], b""

        def serve(server):
            connection = HttpConnection(server, max_body_bytes)
            more = True
            while more:
                try:
                    head = connection.receive_head()
                    if head is None:
                        break
                    body = connection.receive_body()
                except HttpError as error:
                    refusal = Reply(error.status, str(error).encode(), "text/plain")
                    connection.reply(refusal, last=True)
                    break
                requests.append((head.method, head.target, body))
                more = connection.reply(Reply(200, b"fine", "text/plain"), last=False)
            connection.finish()

        with connected() as (client, server):
            thread = threading.Thread(target=serve, args=[server])
            thread.start()
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            while part := client.recv(65536):
                received += part
            thread.join()
        return requests, received

    return run


REFUSED = [
    (HEAD + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\nab" + NEXT, 400),
    (HEAD + b"Content-Length: 2, 40\r\n\r\nab" + NEXT, 400),
    (HEAD + b"Content-Length: +2\r\n\r\nab" + NEXT, 400),
    (HEAD + b"Content-Length: 1_0\r\n\r\nab" + NEXT, 400),
    (HEAD + b"Content-Length: 0x2\r\n\r\nab" + NEXT, 400),
    (HEAD + b"Content-Length: -2\r\n\r\nab" + NEXT, 400),
    (HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nab", 400),
    (HEAD + b"no colon here\r\nContent-Length: 2\r\n\r\nab" + NEXT, 400),
    (HEAD + b": no name\r\nContent-Length: 2\r\n\r\nab" + NEXT, 400),
    (HEAD + b"Transfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\nab" + NEXT, 400),
    (HEAD + b"Content-Length : 2\r\n\r\nab" + NEXT, 400),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + NEXT, 400),
    (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n" + NEXT, 400),
    (HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + NEXT, 501),
    (HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + NEXT, 400),
    (HEAD + b"X: a\0b\r\nContent-Length: 2\r\n\r\nab" + NEXT, 400),
    (HEAD + b"X: a\rContent-Length: 9\r\nContent-Length: 2\r\n\r\nab" + NEXT, 400),
    (HEAD + b"Host: b\r\nContent-Length: 2\r\n\r\nab" + NEXT, 400),
    (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab" + NEXT, 400),
    (HEAD + b"Content-Length: 101\r\n\r\n" + b"a" * 101, 400),
    (HEAD + b"Content-Length: 3\r\n\r\nab", 400),  # and then nothing
    (HEAD + b"Content-Le", 400),
    (HEAD + b"X: " + b"y" * 200_000 + b"\r\n\r\n", 431),
    (b"POST /p HTTP/1.1\r\n Host: a\r\nContent-Length: 2\r\n\r\nab" + NEXT, 400),
    (b"POST /p HTTP/1.1\r\nContent-Length: 2\r\n\r\nab" + NEXT, 400),  # without Host
    (b"POST /p HTTP/9.9\r\nHost: a\r\nContent-Length: 2\r\n\r\nab" + NEXT, 505),
    (b"POST /p\r\nHost: a\r\n\r\n" + NEXT, 400),
    (b"POST  /p HTTP/1.1\r\nHost: a\r\n\r\n" + NEXT, 400),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS
]


@pytest.mark.parametrize(("sent", "status"), REFUSED)
def test_what_could_be_read_in_two_ways(exchange, sent, status):
    """It is answered once, and what follows it is not taken for a request."""
    requests, received = exchange(sent)
    assert requests == []
    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: close\r\n" in received


def test_a_body_of_any_method_ends_where_it_says(exchange):
    """And the answer to HEAD has none, or the next request would get it."""
    for method in b"HEAD", b"GET", b"DELETE", b"POST":
        sent = method + b" /p HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab" + NEXT
        requests, received = exchange(sent)
        assert requests == [(method.decode(), "/p", b"ab"), ("GET", "/hidden", b"")]
        assert received.count(b"HTTP/1.1 200 OK") == 2
        assert received.count(b"fine") == (1 if method == b"HEAD" else 2)


def test_headers_that_servers_send_say_nothing_of_this_one(exchange):
    _, received = exchange(NEXT)
    assert b"Server" not in received
    assert b"\r\nDate: " in received


def test_the_same_length_twice_is_one_length(exchange):
    requests, _ = exchange(HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nab" + NEXT)
    assert requests == [("POST", "/p", b"ab"), ("GET", "/hidden", b"")]


def test_a_client_that_waits_to_be_told_to_go_on(exchange):
    sent = HEAD + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    requests, received = exchange(sent + b"ab")
    assert requests == [("POST", "/p", b"ab")]
    assert received.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")


def test_http_1_0_ends_after_one_answer(exchange):
    requests, received = exchange(b"GET /p HTTP/1.0\r\n\r\n" + NEXT)
    assert requests == [("GET", "/p", b"")]
    assert b"\r\nConnection: close\r\n" in received


def test_a_client_that_says_nothing(exchange):
    assert exchange(b"") == ([], b"")


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"Content-Length: 9\r\n\r\nab"])
def test_a_client_that_stops_sending(monkeypatch, sent):
    """Before a request it is let go; within one, it is told."""
    monkeypatch.setattr("serving.server.http_connection._IDLE_SECONDS", 0.05)
    with connected() as (client, server):
        client.sendall(sent)
        connection = HttpConnection(server, 100)
        if not sent:
            assert connection.receive_head() is None
            return
        with pytest.raises(HttpError, match="The request took too long") as caught:
            connection.receive_head()
            connection.receive_body()
        assert caught.value.status == 408


def test_a_request_that_comes_byte_by_byte_has_an_end(monkeypatch):
    monkeypatch.setattr("serving.server.http_connection._REQUEST_SECONDS", 0.0)
    with connected() as (client, server):
        client.sendall(HEAD)
        with pytest.raises(HttpError, match="The request took too long"):
            HttpConnection(server, 100).receive_head()

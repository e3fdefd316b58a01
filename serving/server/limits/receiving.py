"""Ends calls over gRPC that do not send their message."""

import threading
import time
from collections.abc import Iterator

import grpc

MOST_CALLS = 64  # that may take their time to send their message
_SECONDS = 120.0  # until it has to be whole, as over REST
_CROWDED_SECONDS = 0.5  # for calls beyond `MOST_CALLS`, the oldest first


class Receiving:
    """The calls whose message is on its way. Each holds a thread until it is whole.

    gRPC itself waits without an end for a client that never sends it, so that a few such calls
    would keep all others out. Here, they are ended in time: at once, if others need their threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[grpc.ServicerContext, float] = {}  # the oldest first
        self._seconds = _SECONDS

    def message(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes | None:
        """Returns a call's message; None if its client sends none.

        Raises:
            grpc.RpcError: the client has left, or the call was ended here.
        """
        with self._lock:
            self._begun[context] = time.monotonic()
        try:
            return next(messages, None)
        finally:
            with self._lock:
                del self._begun[context]

    def end_late(self) -> None:
        """Ends the calls whose time is over, with CANCELLED. Has to be called again and again."""
        now = time.monotonic()
        with self._lock:
            begun = list(self._begun.items())
        for index, (context, since) in enumerate(begun):
            is_crowded = index < len(begun) - MOST_CALLS
            if now - since > (_CROWDED_SECONDS if is_crowded else self._seconds):
                context.cancel()

    def close(self) -> None:
        """Gives calls no more time than when they are too many, as the server stops."""
        self._seconds = _CROWDED_SECONDS

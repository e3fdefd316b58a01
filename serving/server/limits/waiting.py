"""How many requests run and wait, and how long a call may take to send its message."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
from grpc import StatusCode

from serving.server.errors import ServingError
from serving.server.limits.one_request import Budget
from serving.server.prometheus_metrics import Metrics

MOST_CALLS = 64  # that may take their time to send their message
_SECONDS = 120.0  # until it has to be whole, as over REST
_CROWDED_SECONDS = 0.5  # for calls beyond `MOST_CALLS`, the oldest first

_FREE_BYTES = 2**16  # of each request, which do not count: large ones keep out no small ones


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


class Admission:
    """Bounds how many requests run and wait. They run in the order in which they came.

    Under overload, a queue without a bound grows until every reply arrives after its client has
    given up. With a bound, the server keeps its speed, and a client that it refuses knows at once.

    Args:
        max_bytes: the most bytes of all requests that are received and not yet answered.
    """

    def __init__(
        self, max_running: int, max_waiting: int, metrics: Metrics, max_bytes: float = math.inf
    ) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._running = 0
        self._max_bytes = max_bytes
        self._bytes = 0
        self._turns: deque[threading.Event] = deque()
        metrics.watch_queue(max_waiting, lambda: len(self._turns), lambda: self._running)

    @contextmanager
    def held(self) -> Iterator[Callable[[int], None]]:
        """Yields a function that counts bytes of one request, until the `with` statement ends.

        It raises a ServingError if there are too many together with those of other requests.
        """
        size = counted = 0

        def hold(more: int) -> None:
            nonlocal size, counted
            size += more
            with self._lock:
                added = max(0, size - _FREE_BYTES) - counted
                if self._bytes + added > self._max_bytes:
                    raise ServingError(
                        StatusCode.RESOURCE_EXHAUSTED,
                        f"The server is busy: requests that it has not answered yet have "
                        f"{self._bytes} bytes, of at most {self._max_bytes}",
                    )
                self._bytes += added
            counted += added

        try:
            yield hold
        finally:
            with self._lock:
                self._bytes -= counted

    @contextmanager
    def admitted(self, budget: Budget) -> Iterator[None]:
        """Runs the body of a `with` statement when it is its turn.

        Raises:
            ServingError: too many wait already, or the request's time was over while it waited.
        """
        self._enter(budget)
        try:
            yield
        finally:
            with self._lock:
                if self._turns:
                    self._turns.popleft().set()  # the next request runs instead of this one
                else:
                    self._running -= 1

    def _enter(self, budget: Budget) -> None:
        """Waits for a turn."""
        with self._lock:
            if self._running < self._max_running:
                self._running += 1
                return
            if len(self._turns) >= self._max_waiting:
                raise ServingError(
                    StatusCode.RESOURCE_EXHAUSTED,
                    f"The server is busy: {self._running} requests run and {len(self._turns)} "
                    "wait, as many as may (--max_queued_requests)",
                )
            turn = threading.Event()
            self._turns.append(turn)
        budget.wait(turn)
        with self._lock:
            if turn not in self._turns:  # its turn came
                return
            self._turns.remove(turn)
        raise budget.refusal("while waiting for a turn")

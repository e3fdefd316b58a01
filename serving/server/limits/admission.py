"""Decides which requests run, which wait, and which are refused because there are too many."""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from grpc import StatusCode

from serving.server.errors import ServingError
from serving.server.limits.budget import Budget
from serving.server.prometheus_metrics import Metrics

_FREE_BYTES = 2**16  # of each request, which do not count: large ones keep out no small ones


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

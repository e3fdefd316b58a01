"""Decides which requests run, which wait, and which are refused because too many wait."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from grpc import StatusCode

from serving.server.errors import ServingError
from serving.server.limits.budget import Budget
from serving.server.prometheus_metrics import Metrics


class Admission:
    """Bounds how many requests run and wait. They run in the order in which they came.

    Under overload, a queue without a bound grows until every reply arrives after its client has
    given up. With a bound, the server keeps its speed, and a client that it refuses knows at once.
    """

    def __init__(self, max_running: int, max_waiting: int, metrics: Metrics) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._running = 0
        self._turns: deque[threading.Event] = deque()
        metrics.watch_queue(max_waiting, lambda: len(self._turns), lambda: self._running)

    @contextmanager
    def admitted(self, budget: Budget) -> Iterator[None]:
        """Runs the body of a `with` statement when it is its turn.

        Raises:
            ServingError: too many wait already, or the request's time ran out while it waited.
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
        if turn.wait(budget.seconds_left()):
            return
        with self._lock:
            if turn.is_set():  # its turn came just now
                return
            self._turns.remove(turn)
        raise ServingError(StatusCode.DEADLINE_EXCEEDED, "Timed out while waiting for a turn")

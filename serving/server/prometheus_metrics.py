"""TensorFlow Serving's metrics, under its names, as a page for Prometheus."""

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from grpc import StatusCode
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

from serving.server.errors import ServingError

_MICROSECONDS = 1e6
_BUCKETS = [10 * 1.8**power for power in range(33)]  # to about 20 minutes
_EXAMPLE_BUCKETS = [2.0**power for power in range(15)]
# The library adds the start time of each series; TensorFlow Serving does not.
_CREATED = re.compile(rb"^(?:# \w+ )?\S+_created[ {].*\n", re.MULTILINE)


@dataclass
class MeasuredRequest:
    """A request while it is answered.

    Attributes:
        model_name: a served model, once it is known. A request to any other name is not counted.
    """

    model_name: str = ""


class Metrics:
    """The counts and times of one server's requests."""

    CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            ":tensorflow:serving:request_count",
            "The total number of requests.",
            ["model_name", "status"],
            registry=self._registry,
        )
        self._request_latency = Histogram(
            ":tensorflow:serving:request_latency",
            "Wall time of requests in microseconds.",
            ["model_name", "API", "entrypoint"],
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._example_counts = Histogram(
            ":tensorflow:serving:request_example_counts",
            "The number of tensorflow.Examples per request.",
            ["model"],
            registry=self._registry,
            buckets=_EXAMPLE_BUCKETS,
        )
        self._example_total = Counter(
            ":tensorflow:serving:request_example_count",
            "The total number of tensorflow.Examples.",
            ["model"],
            registry=self._registry,
        )
        self._runtime_latency = Histogram(
            ":tensorflow:serving:runtime_latency",
            "Wall time in the TensorFlow runtime in microseconds.",
            ["model_name", "API", "runtime"],
            registry=self._registry,
            buckets=_BUCKETS,
        )

    @contextmanager
    def request(
        self, api: str, entrypoint: str, is_served: Callable[[str], bool]
    ) -> Iterator[MeasuredRequest]:
        """Counts the body of a `with` statement as one request, and times it if it succeeds.

        Were refusals timed too, many cheap ones would hide that answers are slow.

        Args:
            api: the call, such as `Predict` over gRPC and `predict` over REST.
            entrypoint: `GRPC` or `REST`.
            is_served: returns whether a model has a name. Other names are not counted: every name
                that a client makes up would stay in memory.

        Raises:
            ServingError: also instead of any other error, which is the server's fault and is
                logged.
        """
        begin, status, request = time.perf_counter(), StatusCode.OK, MeasuredRequest()
        try:
            yield request
        except ServingError as error:
            status = error.code
            raise
        except Exception as error:
            status = StatusCode.INTERNAL
            logging.exception("A request failed: %s", api)
            raise ServingError(status, f"The server failed with {type(error).__name__}") from error
        finally:
            name = request.model_name
            if is_served(name):
                self._requests.labels(name, status.name).inc()
                if status is StatusCode.OK:
                    latency = (time.perf_counter() - begin) * _MICROSECONDS
                    self._request_latency.labels(name, api, entrypoint).observe(latency)

    def examples(self, model_name: str, count: int) -> None:
        """Counts the tf.Examples of one request that was answered."""
        self._example_counts.labels(model_name).observe(count)
        self._example_total.labels(model_name).inc(count)

    @contextmanager
    def run(self, model_name: str, api: str) -> Iterator[None]:
        """Times the body of a `with` statement as one run of a model, unless it raises."""
        begin = time.perf_counter()
        yield
        latency = (time.perf_counter() - begin) * _MICROSECONDS
        self._runtime_latency.labels(model_name, api, "TF1").observe(latency)

    def watch_queue(
        self, limit: int, waiting: Callable[[], int], running: Callable[[], int]
    ) -> None:
        """Shows how full the queue of requests is, whenever the page is read."""
        for name, text, value in (
            ("queued_requests_limit", "Requests that may wait for their turn.", lambda: limit),
            ("queued_requests", "Requests that wait for their turn.", waiting),
            ("running_requests", "Requests that run.", running),
        ):
            gauge = Gauge(f":gpt1_keras:serving:{name}", text, registry=self._registry)
            gauge.set_function(value)

    def page(self) -> bytes:
        """Returns all metrics in Prometheus's text format."""
        page = _CREATED.sub(b"", generate_latest(self._registry))
        # The library ends the names of counters in _total; TensorFlow Serving only this one.
        return page.replace(b"request_count_total", b"request_count")

"""TensorFlow Serving's metrics, by its names, as a page for Prometheus."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import prometheus_client
from grpc import StatusCode

from serving.server.servable import ServingError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MICROSECONDS = 1e6
_BUCKETS = [10 * 1.8**power for power in range(33)]  # to about 20 minutes

prometheus_client.disable_created_metrics()
_REGISTRY = prometheus_client.CollectorRegistry()
prometheus_client.ProcessCollector(registry=_REGISTRY)
_REQUESTS = prometheus_client.Counter(
    ":tensorflow:serving:request_count",
    "The total number of requests.",
    ["model_name", "status"],
    registry=_REGISTRY,
)
_REQUEST_LATENCY = prometheus_client.Histogram(
    ":tensorflow:serving:request_latency",
    "Wall time of requests in microseconds.",
    ["model_name", "API", "entrypoint"],
    registry=_REGISTRY,
    buckets=_BUCKETS,
)
_RUNTIME_LATENCY = prometheus_client.Histogram(
    ":tensorflow:serving:runtime_latency",
    "Wall time in the TensorFlow runtime in microseconds.",
    ["model_name", "API", "runtime"],
    registry=_REGISTRY,
    buckets=_BUCKETS,
)


@contextmanager
def request_measured(model_name: str, api: str, entrypoint: str) -> Iterator[None]:
    """Counts and times what is done inside as a request.

    Args:
        model_name: a model that is served; empty for one that is not, which is not counted, as
            names that clients make up would stay in memory.
        api: the call, in lower case.
        entrypoint: `GRPC` or `REST`.

    Raises:
        ServingError: in place of any other error, which is a fault of the server and is logged.
    """
    begin, status = time.perf_counter(), StatusCode.OK
    try:
        yield
    except ServingError as error:
        status = error.code
        raise
    except Exception as error:
        status = StatusCode.INTERNAL
        logging.exception("A request failed: %s", api)
        raise ServingError(status, f"The server failed with {type(error).__name__}") from error
    finally:
        if model_name:
            _REQUESTS.labels(model_name, status.name).inc()
            latency = (time.perf_counter() - begin) * _MICROSECONDS
            _REQUEST_LATENCY.labels(model_name, api, entrypoint).observe(latency)


@contextmanager
def runtime_measured(model_name: str, api: str) -> Iterator[None]:
    """Times what is done inside as a run of a model."""
    begin = time.perf_counter()
    yield
    latency = (time.perf_counter() - begin) * _MICROSECONDS
    _RUNTIME_LATENCY.labels(model_name, api, "TF1").observe(latency)


def page() -> bytes:
    """The metrics in Prometheus's text format."""
    # The library ends the names of counters in _total; TensorFlow Serving does not.
    return prometheus_client.generate_latest(_REGISTRY).replace(b"_count_total", b"_count")

"""A model server that speaks TensorFlow Serving's gRPC and REST.

It stands in for tensorflow_model_server on machines that have only Python: it runs models in the
same C++ runtime, with the same protocols, errors, flags and configuration files, so that clients
and tests written against it work with the real server. docs/serving.md says what it leaves to the
real one.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from grpc_health.v1.health import HealthServicer
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from serving.server import config_files, listening
from serving.server.errors import ServingError
from serving.server.metrics import Metrics
from serving.server.models.model_manager import ModelManager
from serving.server.options import Options
from serving.server.requests import grpc_service
from serving.server.requests.admission import Admission
from serving.server.requests.budget import RequestLimits
from serving.server.rest.page import Page
from serving.server.rest.service import RestServer

# Together less than the half minute after which others kill a process that they asked to end.
_GRACE_SECONDS = 25.0
_CANCEL_SECONDS = 2.0
_SPARE_THREADS = 16
_MAX_PENDING_REQUESTS = 10_000


class Server:
    """Serves models over gRPC and, with a port for it, REST. A context manager starts and stops it.

    Args:
        model_name: name to serve one model under.
        model_base_path: folder of its versions.
        **flags: the other options, those of `serving/server/options.py`.

    Attributes:
        models: the models that are served.
        metrics: what this server has counted and timed.
        port: the gRPC port, once the server has started.

    Raises:
        ServingError: a model cannot be loaded.
        ConfigError: a configuration file does not hold what is expected there.
        ValueError: options do not go together.
        OSError: a file cannot be read.
    """

    def __init__(
        self, model_name: str = "default", model_base_path: str = "", **flags: Any
    ) -> None:
        options = Options(model_name, model_base_path, **flags)
        self.metrics = Metrics()
        self.port = options.port
        self._options = options
        self._credentials = _credentials(options)
        self._health = HealthServicer() if options.enable_grpc_healthcheck_service else None
        self._rest: list[RestServer] = []
        admission = Admission(options.grpc_max_threads, options.max_queued_requests, self.metrics)
        limits = RequestLimits(options.max_request_rows, options.max_request_bytes)
        self._rest_options: dict[str, Any] = {
            "admission": admission,
            "limits": limits,
            "timeout": options.rest_api_timeout_in_ms / 1000,
            "max_body_bytes": options.max_request_bytes,
            "metrics_path": options.monitoring_config_file
            and config_files.read_metrics_path(options.monitoring_config_file),
            "page": Page() if options.rest_api_page else None,
        }
        grpc_options: dict[str, int | str] = {
            # Otherwise two servers could share a port and each answer some of the requests.
            "grpc.so_reuseport": 0,
            "grpc.max_receive_message_length": options.max_request_bytes,
            # What gRPC itself refuses, when so many have not been looked at, ends as CANCELLED,
            # which tells no client to come back later.
            "grpc.server.max_pending_requests": _MAX_PENDING_REQUESTS,
            "grpc.server.max_pending_requests_hard_limit": _MAX_PENDING_REQUESTS,
            **listening.channel_arguments(options.grpc_channel_arguments),
        }
        self.models = ModelManager(options, self.metrics)
        file = options.model_config_file
        self._poll_seconds = {
            self._poll_config: options.model_config_file_poll_wait_seconds if file else 0,
            self.models.poll: options.file_system_poll_wait_seconds,
        }
        self._stopping = threading.Event()
        self._config = (
            config_files.read_models(file)
            if file
            else _single_model(options.model_name, options.model_base_path)
        )
        self.models.configure(self._config)
        # Threads for all requests that run or wait, and some to refuse others and to answer probes.
        num_threads = options.grpc_max_threads + options.max_queued_requests + _SPARE_THREADS
        self._grpc = grpc.server(
            ThreadPoolExecutor(num_threads),
            handlers=tuple(grpc_service.handlers(self.models, self.metrics, admission, limits)),
            # What would wait for a thread is refused before it is read.
            maximum_concurrent_rpcs=2 * num_threads,
            options=list(grpc_options.items()),
        )
        if self._health:
            add_HealthServicer_to_server(self._health, self._grpc)

    def start(self) -> None:
        """Opens the ports, and begins to answer requests and to look for changes.

        Raises:
            OSError: a port cannot be opened.
        """
        # REST first: a gRPC server that has not started does not release its port.
        try:
            if self._options.rest_api_port:
                for address in listening.addresses(self._options.host):
                    self._rest.append(self._listen_for_rest(address))
            for address in listening.addresses(self._options.host):
                self.port = self._listen(listening.with_port(address, self.port))
            if self._options.grpc_socket_path:
                self._listen(f"unix:{self._options.grpc_socket_path}")
        except OSError:
            for rest in self._rest:
                rest.server_close()
            raise
        self._grpc.start()
        for rest in self._rest:
            rest.start()
        if self._health:
            for name in ("", *grpc_service.SERVICES):
                self._health.set(name, HealthCheckResponse.SERVING)
        for poll, seconds in self._poll_seconds.items():
            if seconds > 0:
                threading.Thread(target=self._repeat, args=(poll, seconds), daemon=True).start()

    def stop(self) -> None:
        """Closes the ports, and returns once the requests in flight are answered.

        Those that are not after 25 seconds fail with CANCELLED or UNAVAILABLE.
        """
        self._stopping.set()
        if self._health:
            self._health.enter_graceful_shutdown()
        grpc_stopped = self._grpc.stop(_GRACE_SECONDS)
        if not self._drain(grpc_stopped, _GRACE_SECONDS):
            self.models.cancel()
            self._drain(grpc_stopped, _CANCEL_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _listen(self, address: str) -> int:
        """Opens a port for gRPC, and returns its number."""
        try:
            if self._credentials:
                return self._grpc.add_secure_port(address, self._credentials)
            return self._grpc.add_insecure_port(address)
        except RuntimeError as error:
            alts = self._options.use_alts_credentials
            raise OSError(
                f"Cannot listen for gRPC on {address}: not an address of this machine, or in use"
                + alts * ", or this machine, which is not Google's, has no ALTS"
            ) from error

    def _listen_for_rest(self, address: str) -> RestServer:
        """Opens a port for REST."""
        port = self._options.rest_api_port
        try:
            return RestServer(self.models, self.metrics, (address, port), **self._rest_options)
        except OSError as error:
            where = listening.with_port(address, port)
            raise OSError(f"Cannot listen for REST on {where}: {error.strerror}") from error

    def _drain(self, grpc_stopped: threading.Event, seconds: float) -> bool:
        """Closes the ports, and tells whether the requests in flight were answered in time."""
        end = time.monotonic() + seconds
        # At once, as each would go on listening while another one waits.
        threads = [
            threading.Thread(target=rest.stop, args=[seconds], daemon=True) for rest in self._rest
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return grpc_stopped.wait(max(0.0, end - time.monotonic())) and time.monotonic() < end

    def _repeat(self, poll: Callable[[], None], seconds: float) -> None:
        """Looks for changes every few seconds until the server stops."""
        while not self._stopping.wait(seconds):
            try:
                poll()
            except Exception:  # which must not end the polling, whatever it is
                logging.exception("Cannot look for changes")

    def _poll_config(self) -> None:
        """Reads the file of models again, and takes over what is new in it."""
        file = self._options.model_config_file
        try:
            config = config_files.read_models(file)
            if config != self._config:  # otherwise broken versions would be tried at every poll
                self.models.configure(config)
                self._config = config
        except (ServingError, OSError, ValueError) as error:
            logging.error("Cannot take over %s: %s", file, error)


def _credentials(options: Options) -> grpc.ServerCredentials | None:
    """Returns the credentials that the flags ask for, if they do."""
    if options.ssl_config_file and options.use_alts_credentials:
        raise ValueError("Expected --ssl_config_file or --use_alts_credentials; received both")
    if options.ssl_config_file:
        return config_files.read_credentials(options.ssl_config_file)
    return grpc.alts_server_credentials() if options.use_alts_credentials else None


def _single_model(name: str, base_path: str) -> ModelServerConfig:
    """Returns the configuration of one model."""
    config = ModelServerConfig()
    path = str(Path(base_path).absolute())
    config.model_config_list.config.add(name=name, base_path=path, model_platform="tensorflow")
    return config

"""A model server that speaks TensorFlow Serving's gRPC and REST.

It stands in for tensorflow_model_server on machines that have only Python: it runs models in the
same C++ runtime, with the same protocols, errors, flags and configuration files, so that clients
and tests written against it work with the real server. docs/server.md says what it leaves to the
real one.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from serving.server import addresses, config_files
from serving.server.errors import ServingError
from serving.server.grpc_server import GrpcServer
from serving.server.inference import Resources, warm_up
from serving.server.limits import Admission, RequestLimits
from serving.server.models.model_manager import ModelManager
from serving.server.options import Options
from serving.server.page import Page
from serving.server.prometheus_metrics import Metrics
from serving.server.rest_server import RestServer

# Together less than 30 seconds: after that, Docker or Kubernetes would kill the process.
_GRACE_SECONDS = 25.0
_CANCEL_SECONDS = 2.0
_HELD_REQUESTS = 8  # of the longest, whose bytes all requests together may have


class Server:
    """Serves models over gRPC and, if it has a port, REST. A context manager starts and stops it.

    Args:
        model_name: name to serve one model under.
        model_base_path: the folder of that model's versions.
        **flags: the other options, those of `serving/server/options.py`.

    Attributes:
        models: the models that are served.
        metrics: the counts and times of this server's requests.

    Raises:
        ServingError: a model cannot be loaded.
        ConfigError: a configuration file does not hold what is expected there.
        ValueError: options contradict each other.
        OSError: a file cannot be read, or a port is in use.
    """

    def __init__(
        self, model_name: str = "default", model_base_path: str = "", **flags: Any
    ) -> None:
        options = Options(model_name, model_base_path, **flags)
        self._options = options
        self.metrics = Metrics()
        rounds = max(1, options.num_request_iterations_for_warmup)
        self.models = ModelManager(
            options,
            self.metrics,
            functools.partial(warm_up, rounds=rounds if options.enable_model_warmup else 0),
        )
        resources = Resources(
            self.models,
            self.metrics,
            Admission(
                options.grpc_max_threads,
                options.max_queued_requests,
                self.metrics,
                _HELD_REQUESTS * options.max_request_bytes,
            ),
            RequestLimits(options.max_request_rows, options.max_request_bytes),
        )
        self._grpc = GrpcServer(resources, options)
        monitoring = options.monitoring_config_file
        self._listen_for_rest = functools.partial(
            RestServer,
            resources,
            options,
            metrics_path=config_files.read_metrics_path(monitoring) if monitoring else None,
            page=Page() if options.rest_api_page else None,
        )
        self._rest: list[RestServer] = []
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
        # Before the models, as loading them may take minutes.
        addresses.check_free("gRPC", "port", options.host, options.port)
        addresses.check_free("REST", "rest_api_port", options.host, options.rest_api_port)
        self.models.configure(self._config)

    @property
    def port(self) -> int:
        """The gRPC port, once the server has started."""
        return self._grpc.port

    def start(self) -> None:
        """Opens the ports, and starts to answer requests and to look for changes.

        Raises:
            OSError: a port cannot be opened.
        """
        # REST first: a gRPC server that has not started does not release its port.
        try:
            if self._options.rest_api_port:
                for address in addresses.of_host(self._options.host):
                    self._rest.append(self._listen_for_rest(address))
            self._grpc.listen()
        except OSError:
            for rest in self._rest:
                rest.server_close()
            raise
        self._grpc.start()
        for rest in self._rest:
            rest.start()
        for poll, seconds in self._poll_seconds.items():
            if seconds > 0:
                threading.Thread(target=self._repeat, args=(poll, seconds), daemon=True).start()

    def stop(self) -> None:
        """Closes the ports, and returns once the requests in flight are answered.

        Requests that are not answered after 25 seconds fail with CANCELLED or UNAVAILABLE.
        """
        self._stopping.set()
        grpc_stopped = self._grpc.stop(_GRACE_SECONDS)
        if not self._drain(grpc_stopped, _GRACE_SECONDS):
            self.models.cancel()
            self._drain(grpc_stopped, _CANCEL_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _drain(self, grpc_stopped: threading.Event, seconds: float) -> bool:
        """Closes the ports; returns whether the requests in flight were answered in time."""
        end = time.monotonic() + seconds
        # In parallel: otherwise one would still listen while another one waits.
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
            except Exception:  # no error may end the polling
                logging.exception("Cannot look for changes")

    def _poll_config(self) -> None:
        file = self._options.model_config_file
        try:
            config = config_files.read_models(file)
            if config != self._config:  # or every poll would try broken versions again
                self.models.configure(config)
                self._config = config
        except (ServingError, OSError, ValueError) as error:
            logging.error("Cannot take over %s: %s", file, error)


def _single_model(name: str, base_path: str) -> ModelServerConfig:
    config = ModelServerConfig()
    path = str(Path(base_path).absolute())
    config.model_config_list.config.add(name=name, base_path=path, model_platform="tensorflow")
    return config

"""The gRPC server: its ports and its Unix socket, credentials, and the health check."""

import resource
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1.health import HealthServicer
from grpc_health.v1.health_pb2 import HealthCheckResponse

from serving.server.calls import grpc_service
from serving.server.calls.inference import Resources
from serving.server.limits.waiting import MOST_CALLS, Receiving
from serving.server.options import Options
from serving.server.transport import listening
from serving.server.transport.listening import server_credentials

_SPARE_THREADS = 16
_MAX_PENDING_REQUESTS = 10_000
_MOST_CONNECTIONS = 4096
_POLL_SECONDS = 0.1


class GrpcServer:
    """Answers gRPC requests about a server's models.

    Attributes:
        port: the port, once `listen` has opened it.

    Raises:
        OSError: a file that the options name cannot be read.
        ValueError: it does not hold what is expected there, or options contradict each other.
    """

    def __init__(self, resources: Resources, options: Options) -> None:
        self.port = options.port
        self._options = options
        self._credentials = server_credentials(options)
        self._health = HealthServicer() if options.enable_grpc_healthcheck_service else None
        self._receiving = Receiving()
        # Threads for all requests that run or wait, and more to refuse others and to answer probes,
        # also while calls that are too many and send no message have not been ended yet.
        num_threads = options.grpc_max_threads + options.max_queued_requests + _SPARE_THREADS
        num_threads += 4 * MOST_CALLS
        handlers = [*grpc_service.handlers(resources, self._receiving)]
        if self._health:
            handlers.append(grpc_service.health_handler(self._health, self._receiving))
        self._server = grpc.server(
            ThreadPoolExecutor(num_threads),
            handlers=handlers,
            # Requests that would wait for a thread are refused before they are read.
            maximum_concurrent_rpcs=2 * num_threads,
            options=list(_channel_options(options).items()),
        )

    def listen(self) -> None:
        """Opens the port on each of the host's addresses, and the Unix socket.

        Raises:
            OSError: one of them cannot be opened.
        """
        for address in listening.addresses(self._options.host):
            self.port = self._open(listening.with_port(address, self.port))
        if self._options.grpc_socket_path:
            self._open(f"unix:{self._options.grpc_socket_path}")

    def start(self) -> None:
        """Begins to answer requests."""
        self._server.start()
        threading.Thread(target=self._end_late_calls, daemon=True).start()
        if self._health:
            for name in ("", *grpc_service.SERVICES):
                self._health.set(name, HealthCheckResponse.SERVING)

    def stop(self, grace: float) -> threading.Event:
        """Closes the ports at once; requests without an answer after `grace` seconds fail.

        Returns:
            An event that is set once no request is left.
        """
        if self._health:
            self._health.enter_graceful_shutdown()
        self._receiving.close()
        return self._server.stop(grace)

    def _end_late_calls(self) -> None:
        """Ends calls that do not send their message, until the server has stopped."""
        while self._server.wait_for_termination(_POLL_SECONDS):  # it was not in that time
            self._receiving.end_late()

    def _open(self, address: str) -> int:
        """Opens a port, and returns its number."""
        try:
            if self._credentials:
                return self._server.add_secure_port(address, self._credentials)
            return self._server.add_insecure_port(address)
        except RuntimeError as error:
            alts = self._options.use_alts_credentials
            raise OSError(
                f"Cannot listen for gRPC on {address}: not an address of this machine, or in use"
                + alts * ", or this machine, which is not Google's, has no ALTS"
            ) from error


def _channel_options(options: Options) -> dict[str, int | str]:
    """Returns gRPC's own options by name; those of `--grpc_channel_arguments` replace others."""
    return {
        # Otherwise two servers could share a port, and each would answer some of the requests.
        "grpc.so_reuseport": 0,
        # Further connections are closed at once. A third of the descriptors that the process may
        # have leaves enough for REST, and for the files of models.
        "grpc.max_allowed_incoming_connections": min(
            _MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 3
        ),
        "grpc.max_receive_message_length": options.max_request_bytes,
        # `grpc_service` decompresses messages when it is their turn, and bounds how they grow.
        "grpc.per_message_decompression": 0,
        # gRPC itself ends further requests, which no thread has taken yet, with CANCELLED. That
        # does not tell a client to try again later, so the limit is high.
        "grpc.server.max_pending_requests": _MAX_PENDING_REQUESTS,
        "grpc.server.max_pending_requests_hard_limit": _MAX_PENDING_REQUESTS,
        **listening.channel_arguments(options.grpc_channel_arguments),
    }

"""The gRPC server: its ports, Unix socket, credentials and own options, and the health check."""

import resource
import ssl
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1.health import HealthServicer
from grpc_health.v1.health_pb2 import HealthCheckResponse

from serving.server import addresses, grpc_service
from serving.server.config_files import ConfigError, read_ssl
from serving.server.inference import Resources
from serving.server.limits import MOST_CALLS, Receiving
from serving.server.options import Options

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
        for address in addresses.of_host(self._options.host):
            self.port = self._open(addresses.with_port(address, self.port))
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


def server_credentials(options: Options) -> grpc.ServerCredentials | None:
    """Returns the credentials that the options name; None if they name none.

    Raises:
        ValueError: the options name both kinds.
        OSError: the file of `--ssl_config_file` cannot be read.
        ConfigError: it does not hold what `read_credentials` expects.
    """
    if options.ssl_config_file and options.use_alts_credentials:
        raise ValueError("Expected --ssl_config_file or --use_alts_credentials; received both")
    if options.ssl_config_file:
        return read_credentials(options.ssl_config_file)
    return grpc.alts_server_credentials() if options.use_alts_credentials else None


def read_credentials(path: str) -> grpc.ServerCredentials:
    """Makes credentials from the file of `--ssl_config_file`.

    Raises:
        OSError: the file cannot be read.
        ConfigError: it is not an SSLConfig in text format, or does not hold a key and its
            certificate.
    """
    config = read_ssl(path)
    if not config.server_key or not config.server_cert:
        raise ConfigError(f"Expected server_key and server_cert, both in PEM format, in {path}")
    if config.client_verify and not config.custom_ca:
        raise ConfigError(f"Expected custom_ca in {path}, to verify clients with")
    try:
        _check_certificate(config)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"Expected a key without a password and its certificate, and certificates in "
            f"custom_ca, all in PEM format, in {path}: {error}"
        ) from error
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )


def _check_certificate(config: Any) -> None:
    """Raises an error for a wrong key or certificate; gRPC would only fail to open its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:  # other users cannot read it
        key, certificate = Path(folder, "key"), Path(folder, "certificate")
        key.write_text(config.server_key)
        certificate.write_text(config.server_cert)
        context.load_cert_chain(certificate, key, password="")  # so that it does not ask for one
    if config.custom_ca:
        context.load_verify_locations(cadata=config.custom_ca)


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
        **channel_arguments(options.grpc_channel_arguments),
    }


def channel_arguments(text: str) -> dict[str, int | str]:
    """Parses the flag `--grpc_channel_arguments`: `NAME=VALUE,NAME=VALUE`.

    Values that are 32-bit integers become integers, as gRPC has options of both types.

    Raises:
        ValueError: `text` is not of that form.
    """
    arguments: dict[str, int | str] = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise ValueError(
                f"Expected --grpc_channel_arguments as NAME=VALUE,NAME=VALUE; received {item!r}"
            )
        number = int(value) if value.removeprefix("-").isdecimal() and value.isascii() else None
        is_number = number is not None and -(2**31) <= number < 2**31
        arguments[name] = number if number is not None and is_number else value
    return arguments

"""The addresses that a server listens on, its certificates, and gRPC's own options."""

import socket
import ssl
import tempfile
from pathlib import Path
from typing import Any

import grpc

from serving.server.config_files import ConfigError, read_ssl
from serving.server.options import Options


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


def addresses(host: str) -> list[str]:
    """Returns the addresses to listen on for a host: both loopback ones for `localhost`.

    Clients use either address for `localhost`, and not all of them then try the other.
    """
    if host != "localhost":
        return [host]
    return ["127.0.0.1", "::1"] if _has_ipv6_loopback() else ["127.0.0.1"]


def with_port(address: str, port: int) -> str:
    """Returns an address and a port as gRPC takes them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def check_free(protocol: str, flag: str, host: str, port: int) -> None:
    """Raises OSError if a port is in use or the host is not an address of this machine.

    Args:
        protocol: what the port is for, for the message.
        flag: the flag that chooses it.
        host: where to listen, as `addresses` takes it.
        port: the port; 0 is not checked.
    """
    for address in addresses(host) if port else []:
        try:
            family, *_, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # A connection that was closed a moment ago does not keep a server from listening.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
        except OSError as error:
            raise OSError(
                f"Cannot listen for {protocol} on {with_port(address, port)}: {error.strerror}. "
                f"Choose by --{flag} and --host."
            ) from error


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


def _has_ipv6_loopback() -> bool:
    """Returns whether this machine has the address ::1."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True

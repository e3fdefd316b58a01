"""The credentials of gRPC's clients and of this server: TLS, or Google's ALTS."""

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

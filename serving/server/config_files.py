"""The configuration files of TensorFlow Serving, protocol buffers in text format."""

import re
import ssl
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf import text_format
from google.protobuf.message import Message
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from serving.server import messages

_Message = TypeVar("_Message", bound=Message)


class ConfigError(ValueError):
    """A configuration file that does not hold what is expected there."""


def read_models(path: str) -> ModelServerConfig:
    """Reads the file that `--model_config_file` names.

    Raises:
        OSError: the file cannot be read.
        ConfigError: it is not a ModelServerConfig in text format.
    """
    return _read(path, ModelServerConfig())


def read_session_config(path: str) -> ConfigProto:
    """Reads the file that `--tensorflow_session_config_file` names; raises as `read_models`."""
    return _read(path, ConfigProto())


def read_metrics_path(path: str) -> str | None:
    """Returns the path of the metrics page, if the file of `--monitoring_config_file` enables it.

    Raises:
        OSError: the file cannot be read.
        ConfigError: it is not a MonitoringConfig in text format.
    """
    config: Any = _read(path, messages.new("MonitoringConfig")).prometheus_config
    return (config.path or "/monitoring/prometheus/metrics") if config.enable else None


def read_credentials(path: str) -> grpc.ServerCredentials:
    """Makes the credentials that the file of `--ssl_config_file` holds.

    Raises:
        OSError: the file cannot be read.
        ConfigError: it is not an SSLConfig in text format, or what it holds is not a key and its
            certificate.
    """
    config: Any = _read(path, messages.new("SSLConfig"))
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
    """Raises what is wrong with a key and certificates; gRPC would only fail to open its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:  # which nobody else can read
        key, certificate = Path(folder, "key"), Path(folder, "certificate")
        key.write_text(config.server_key)
        certificate.write_text(config.server_cert)
        context.load_cert_chain(certificate, key, password="")  # which nobody is asked for
    if config.custom_ca:
        context.load_verify_locations(cadata=config.custom_ca)


def _read(path: str, message: _Message) -> _Message:
    """Returns `message` with the contents of a text file."""
    name = message.DESCRIPTOR.full_name
    try:
        with open(path, encoding="utf-8") as file:
            return text_format.Parse(file.read(), message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        # TensorFlow Serving's own words, which scripts look for.
        reason = re.sub("^([0-9]+:[0-9]+) : ", r"\1: ", " ".join(str(error).split()))
        raise ConfigError(
            f"Error parsing text-format {name}: {reason} (Invalid protobuf file: '{path}')"
        ) from error

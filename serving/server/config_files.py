"""The configuration files of TensorFlow Serving, protocol buffers in text format."""

from typing import Any, TypeVar

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import Message
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

_Message = TypeVar("_Message", bound=Message)
_PACKAGE = "serving"
# What tensorflow-serving-api leaves out of TensorFlow Serving's protos: name and type by number.
_MESSAGES = {
    "SSLConfig": {
        1: ("server_key", "TYPE_STRING"),
        2: ("server_cert", "TYPE_STRING"),
        3: ("custom_ca", "TYPE_STRING"),
        4: ("client_verify", "TYPE_BOOL"),
    },
    "PrometheusConfig": {1: ("enable", "TYPE_BOOL"), 2: ("path", "TYPE_STRING")},
    "MonitoringConfig": {1: ("prometheus_config", "PrometheusConfig")},
}


class ConfigError(ValueError):
    """A configuration file that does not hold what is expected there."""


def read_models(path: str) -> ModelServerConfig:
    """Reads the file that `--model_config_file` names.

    Raises:
        OSError: the file cannot be read.
        ConfigError: it is not a ModelServerConfig in text format.
    """
    return _read(path, ModelServerConfig())


def read_metrics_path(path: str) -> str | None:
    """Returns the path of the metrics page, if the file of `--monitoring_config_file` enables it.

    Raises:
        OSError: the file cannot be read.
        ConfigError: it is not a MonitoringConfig in text format.
    """
    config: Any = _read(path, _message("MonitoringConfig")).prometheus_config
    return (config.path or "/monitoring/prometheus/metrics") if config.enable else None


def read_credentials(path: str) -> grpc.ServerCredentials:
    """Makes the credentials that the file of `--ssl_config_file` holds.

    Raises:
        OSError: the file cannot be read.
        ConfigError: it is not an SSLConfig in text format, or lacks a key or certificate.
    """
    config: Any = _read(path, _message("SSLConfig"))
    if not config.server_key or not config.server_cert:
        raise ConfigError(f"Expected server_key and server_cert, both in PEM format, in {path}")
    if config.client_verify and not config.custom_ca:
        raise ConfigError(f"Expected custom_ca in {path}, to verify clients with")
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )


def _read(path: str, message: _Message) -> _Message:
    """Returns `message` with the contents of a text file."""
    try:
        with open(path, encoding="utf-8") as file:
            return text_format.Parse(file.read(), message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        name = message.DESCRIPTOR.name
        raise ConfigError(f"Expected a {name} in text format in {path}: {error}") from error


def _message(name: str) -> Message:
    """Returns an empty message of one of `_MESSAGES`."""
    file = descriptor_pb2.FileDescriptorProto(name="serving.proto", package=_PACKAGE)
    for message, fields in _MESSAGES.items():
        message_type = file.message_type.add(name=message)
        for number, (field, kind) in fields.items():
            scalar = kind.startswith("TYPE_")
            message_type.field.add(
                name=field,
                number=number,
                label="LABEL_OPTIONAL",
                type=kind if scalar else "TYPE_MESSAGE",
                type_name=None if scalar else f".{_PACKAGE}.{kind}",
            )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))()

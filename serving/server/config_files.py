"""Reads TensorFlow Serving's configuration files, protocol buffers in text format."""

import functools
import re
from typing import Any, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import Message
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

_Message = TypeVar("_Message", bound=Message)
_PACKAGE = "tensorflow.serving"
# Messages that tensorflow-serving-api lacks: their fields' names and types, by number.
_MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
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
    """A configuration file does not hold what is expected there."""


def read(path: str, message: _Message) -> _Message:
    """Returns `message` with the contents of a text file.

    Raises:
        OSError: the file cannot be read.
        ConfigError: it is not a message of this type in text format.
    """
    name = message.DESCRIPTOR.full_name
    try:
        with open(path, encoding="utf-8") as file:
            return text_format.Parse(file.read(), message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        # TensorFlow Serving's own words, as scripts search for them.
        reason = re.sub("^([0-9]+:[0-9]+) : ", r"\1: ", " ".join(str(error).split()))
        raise ConfigError(
            f"Error parsing text-format {name}: {reason} (Invalid protobuf file: '{path}')"
        ) from error


def read_ssl(path: str) -> Any:
    """Returns the SSLConfig in the file that `--ssl_config_file` names; raises as `read`."""
    return read(path, _new("SSLConfig"))


def read_models(path: str) -> ModelServerConfig:
    """Reads the file that `--model_config_file` names; raises as `read`."""
    return read(path, ModelServerConfig())


def read_session_config(path: str) -> ConfigProto:
    """Reads the file that `--tensorflow_session_config_file` names; raises as `read`."""
    return read(path, ConfigProto())


def read_metrics_path(path: str) -> str | None:
    """Returns the path of the metrics page if the file of `--monitoring_config_file` enables it.

    Raises as `read`.
    """
    config: Any = read(path, _new("MonitoringConfig")).prometheus_config
    return (config.path or "/monitoring/prometheus/metrics") if config.enable else None


def _new(name: str) -> Message:
    """Returns an empty message of one of the types in `_MESSAGES`."""
    descriptor = _pool().FindMessageTypeByName(f"{_PACKAGE}.{name}")
    return message_factory.GetMessageClass(descriptor)()


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    """Returns the messages' descriptors, in a pool separate from other libraries'."""
    file = descriptor_pb2.FileDescriptorProto(
        name="serving.proto", package=_PACKAGE, syntax="proto3"
    )
    for message, fields in _MESSAGES.items():
        message_type = file.message_type.add(name=message)
        for number, (field, kind) in fields.items():
            added = message_type.field.add(name=field, number=number, label="LABEL_OPTIONAL")
            if kind in _MESSAGES:
                added.type, added.type_name = "TYPE_MESSAGE", f".{_PACKAGE}.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool

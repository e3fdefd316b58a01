"""Reads TensorFlow Serving's configuration files, protocol buffers in text format."""

import re
from typing import Any, TypeVar

from google.protobuf import text_format
from google.protobuf.message import Message
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from serving.server import config_messages

_Message = TypeVar("_Message", bound=Message)


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
    config: Any = read(path, config_messages.new("MonitoringConfig")).prometheus_config
    return (config.path or "/monitoring/prometheus/metrics") if config.enable else None

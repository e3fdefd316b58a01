"""The server's flags, by TensorFlow Serving's names and with its defaults."""

import argparse
import inspect
from collections.abc import Callable
from typing import Any

_HELP = {
    "model_name": "name to serve one model under",
    "model_base_path": "folder of its versions, each a SavedModel in a folder named by a number",
    "model_config_file": "a ModelServerConfig in text format, in place of these two",
    "model_config_file_poll_wait_seconds": "seconds between two looks at it; 0 for only one",
    "file_system_poll_wait_seconds": "seconds between two looks for new versions; 0 for only one",
    "allow_version_labels_for_unavailable_models": "accept unused labels for versions that are not "
    "loaded yet, as at the start",
    "host": "address to listen on; 0.0.0.0 also serves other machines",
    "port": "gRPC port; 0 takes a free one",
    "grpc_socket_path": "Unix socket to listen on, too, for gRPC",
    "grpc_max_threads": "how many gRPC requests to answer at once",
    "enable_grpc_healthcheck_service": "offer grpc.health.v1.Health",
    "ssl_config_file": "an SSLConfig in text format; without it, gRPC is plain",
    "rest_api_port": "REST port, by custom 8501; 0 leaves REST off",
    "rest_api_timeout_in_ms": "milliseconds that the model may take for an answer over REST; 0 for "
    "no limit",
    "monitoring_config_file": "a MonitoringConfig in text format, for metrics at the REST port",
    "max_request_bytes": "length of the longest request to take",
}


def parser(server: Callable[..., Any]) -> argparse.ArgumentParser:
    """Returns a parser whose flags are the server's arguments, of the types of their defaults."""
    made = argparse.ArgumentParser(
        prog="python -m serving.server",
        description="Serve exported models over gRPC and REST, with TensorFlow Serving's flags, "
        "protocols and errors.",
    )
    for name, parameter in inspect.signature(server).parameters.items():
        default, text = parameter.default, _HELP[name]
        if default != "":
            text += f" (default: {str(default).lower()})"
        # Booleans are given as --flag, --flag=true or --flag=false.
        optional: dict[str, Any] = {"nargs": "?", "const": True} if default is False else {}
        kind = _port if name.endswith("port") else _TYPES[type(default)]
        made.add_argument(f"--{name}", type=kind, default=default, help=text, **optional)
    return made


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, received {text!r}")
    return int(text)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, received {text!r}")
    return int(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"expected true or false, received {text!r}")
    return text.lower() == "true"


_TYPES: dict[type, Callable[[str], Any]] = {str: str, int: _count, bool: _boolean}

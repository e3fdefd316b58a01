"""Serves the latest version of a model over gRPC and REST, as TensorFlow Serving does.

    python -m serving.server --model_name sst2 --model_base_path exported/sst2 --rest_api_port 8501

This is a small stand-in, for one machine that has Python but no tensorflow_model_server: it speaks
the same protocols and gives the same errors, so that clients and tests written against it work with
the real server. It runs the graph in Python TensorFlow, and it has no batching, no warm-up and no
reloading of versions. In production, give the same folder to the tensorflow/serving image.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType, TracebackType
from typing import Self

# Read when TensorFlow and gRPC are imported: this program reports its errors itself, in a line.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from tensorflow_serving.apis.model_service_pb2_grpc import add_ModelServiceServicer_to_server
from tensorflow_serving.apis.prediction_service_pb2_grpc import (
    add_PredictionServiceServicer_to_server,
)

from serving.grpc_service import ModelService, PredictionService
from serving.rest import RestServer
from serving.servable import ServingError, load_latest

_GRACE_SECONDS = 30.0
_GRPC_OPTIONS = [
    # Else two servers could share a port, and each would answer some of the requests.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 2**31 - 1),
]


class Server:
    """A model behind gRPC and, where wanted, REST. As a context manager, it serves inside.

    Args:
        model_name: the name to serve the model under.
        model_base_path: the folder of its versions.
        host: the IPv4 address, or its name, to listen on.
        port: the gRPC port; 0 takes a free one.
        rest_api_port: the REST port; 0 leaves REST off.

    Attributes:
        version: the version that is served.
        port: the gRPC port, once the server has started.

    Raises:
        ServingError: the model cannot be loaded.
    """

    def __init__(
        self,
        model_name: str,
        model_base_path: str,
        host: str = "127.0.0.1",
        port: int = 8500,
        rest_api_port: int = 0,
    ) -> None:
        self._servables = [load_latest(model_name, model_base_path)]
        self._host = host
        self._rest_api_port = rest_api_port
        self._rest: RestServer | None = None
        self._grpc = grpc.server(
            ThreadPoolExecutor(4 * (os.cpu_count() or 1)), options=_GRPC_OPTIONS
        )
        add_PredictionServiceServicer_to_server(PredictionService(self._servables), self._grpc)
        add_ModelServiceServicer_to_server(ModelService(self._servables), self._grpc)
        self.version = self._servables[0].version
        self.port = port

    def start(self) -> None:
        """Opens the ports and starts to answer.

        Raises:
            OSError: a port cannot be opened.
        """
        # REST first: a gRPC server that has not started does not let go of its port.
        if self._rest_api_port:
            try:
                self._rest = RestServer(self._servables, self._host, self._rest_api_port)
            except OSError as error:
                address = f"{self._host}:{self._rest_api_port}"
                raise OSError(f"Cannot listen for REST on {address}: {error.strerror}") from error
        try:
            self.port = self._grpc.add_insecure_port(f"{self._host}:{self.port}")
        except RuntimeError as error:
            if self._rest:
                self._rest.server_close()
            raise OSError(
                f"Cannot listen for gRPC on {self._host}:{self.port}: "
                "not an address of this machine, or a port in use"
            ) from error
        self._grpc.start()
        if self._rest:
            self._rest.start()

    def stop(self) -> None:
        """Closes the ports, once the requests in flight are answered."""
        grpc_stopped = self._grpc.stop(_GRACE_SECONDS)
        if self._rest:
            self._rest.stop(_GRACE_SECONDS)
        grpc_stopped.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until SIGINT or SIGTERM; returns the exit status."""
    options = _parser().parse_args(argv)
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    try:
        with Server(**vars(options)) as server:
            signal.signal(signal.SIGINT, stop)
            signal.signal(signal.SIGTERM, stop)
            ports = f"{options.host}:{server.port} (gRPC)"
            if options.rest_api_port:
                ports += f" and {options.host}:{options.rest_api_port} (REST)"
            print(f"Serving {options.model_name} version {server.version} at {ports}", flush=True)
            stopping.wait()
    except (ServingError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m serving.server",
        description="Serve the latest version of an exported model over gRPC and REST, with "
        "TensorFlow Serving's flags, protocols and errors.",
    )
    parser.add_argument(
        "--model_name", default="default", help="name to serve the model under (default: default)"
    )
    parser.add_argument(
        "--model_base_path",
        required=True,
        help="folder of the model's versions, each a SavedModel in a folder named by a number",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; 0.0.0.0 also serves other machines (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--port", type=_port, default=8500, help="gRPC port; 0 takes a free one (default: 8500)"
    )
    parser.add_argument(
        "--rest_api_port",
        type=_port,
        default=0,
        help="REST port, by custom 8501; 0 leaves REST off (default: 0)",
    )
    return parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, received {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())

"""Serves models over gRPC and REST, as TensorFlow Serving does.

python -m serving.server --model_name sst2 --model_base_path exports/sst2 --rest_api_port 8501
"""

import contextlib
import dataclasses
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

import tensorflow as tf

from gpt1_keras.cli import exit_status
from gpt1_keras.version import __version__
from serving.server import flags
from serving.server.errors import ServingError
from serving.server.models.loading import runtime
from serving.server.server import Server
from serving.server.transport import listening


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until SIGINT or SIGTERM; returns the exit status."""
    parser = flags.parser()
    parsed = parser.parse_args(arguments)
    if parsed.version:
        print(f"gpt1_keras: {__version__}\nTensorFlow Library: {tf.__version__}")
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    options, xla = flags.read(parsed)
    if not options.model_base_path and not options.model_config_file:
        parser.error("expected --model_base_path or --model_config_file")
    stopping = threading.Event()

    def serve() -> None:
        with _xla(xla), Server(**dataclasses.asdict(options)) as server:
            # TensorFlow's million objects stay, and searching them for garbage whenever a request
            # makes many made parsing eight times slower.
            gc.freeze()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stopping.set())
            models = ", ".join(f"{each.name} version {each.version}" for each in server.models)
            where = f"{listening.with_port(options.host, server.port)} (gRPC)"
            if options.rest_api_port:
                rest = listening.with_port(options.host, options.rest_api_port)
                where += f" and {rest} (REST)"
            print(f"Serving {models} at {where}", flush=True)
            stopping.wait()

    return exit_status(serve, foreseen=(ServingError,))


@contextlib.contextmanager
def _xla(allowed: bool) -> Iterator[None]:
    """Refuses to compile with XLA, unless it is allowed: a graph that needs it would fail there."""
    if not allowed:
        runtime().disable_xla()
    try:
        yield
    finally:
        runtime().enable_xla()


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would wait for the threads of requests that did not end in time.
    os._exit(status)

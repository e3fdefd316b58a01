"""Serves models over gRPC and REST, as TensorFlow Serving does.

gpt1 serve --model_name sst2 --model_base_path exports/sst2
"""

import contextlib
import dataclasses
import gc
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from gpt1_keras.cli import UsageError, program
from gpt1_keras.version import __version__
from serving.server.options import IgnoredFlags, Options, ProcessFlags

if TYPE_CHECKING:
    from serving.server.server import Server


@program("serving.server", underscores=True)
def main(options: Options, process: ProcessFlags, ignored: IgnoredFlags) -> None:
    """Serve exported models over gRPC and REST, with TensorFlow Serving's flags, protocols and
    errors.
    """
    if process.version:
        import tensorflow as tf

        print(f"gpt1_keras: {__version__}\nTensorFlow Library: {tf.__version__}")
        return
    if not options.model_base_path and not options.model_config_file:
        raise UsageError("expected --model_base_path or --model_config_file")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    ignored.warn()
    _serve(options, process.xla_cpu_compilation_enabled or process.xla_gpu_compilation_enabled)


def _serve(options: Options, xla: bool) -> None:
    from serving.server.errors import ServingError
    from serving.server.server import Server

    stopping = threading.Event()
    _allow_descriptors()
    try:
        with _xla(xla), Server(**dataclasses.asdict(options)) as server:
            # TensorFlow's million objects stay for ever. Without this, garbage collection would
            # search them whenever a request makes many objects: parsing was eight times slower.
            gc.freeze()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stopping.set())
            print(_description(options, server), flush=True)
            stopping.wait()
    except ServingError as error:
        raise ValueError(str(error)) from error


def _description(options: Options, server: "Server") -> str:
    """Returns what is served and where, line by line; the lines of links begin with their kind."""
    from serving.server import addresses

    served = list(server.models)
    lines = [f"Serving {', '.join(f'{each.name} version {each.version}' for each in served)}"]
    threads = options.tensorflow_intra_op_parallelism or options.tensorflow_session_parallelism
    lines += [
        f"  threads for one op (--tensorflow_intra_op_parallelism): {threads or 'all cores'}",
        f"  requests that run at once (--grpc_max_threads): {options.grpc_max_threads}",
    ]
    if options.rest_api_port:
        rest = f"http://{addresses.with_port(options.host, options.rest_api_port)}"
        lines += [f"  page: {rest}/"] * options.rest_api_page
        names = dict.fromkeys(each.name for each in served)
        lines += [f"  REST: {rest}/v1/models/{quote(name)}" for name in names]
    return "\n".join([*lines, f"  gRPC: {addresses.with_port(options.host, server.port)}"])


def _allow_descriptors() -> None:
    """Lets this process have as many descriptors as the system allows: often 1,024 is preset."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # on macOS, `most` may be more than it takes
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextlib.contextmanager
def _xla(allowed: bool) -> Iterator[None]:
    """Refuses XLA unless it is allowed, so that graphs fail here if they would in TF Serving."""
    from serving.server.models.loading import runtime

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
    # A normal exit would wait for the threads of requests that did not end in time.
    os._exit(status)

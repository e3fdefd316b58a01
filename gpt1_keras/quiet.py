"""What TensorFlow and gRPC print while they are imported, which no user of a program asked for."""

import contextlib
import logging
import os
import sys


def is_program_starting() -> bool:
    """Whether Python was started with `-m` and is about to import a program of ours."""
    return sys.argv[0] == "-m" and not {"training", "serving"}.isdisjoint(sys.modules)


def silence_imports() -> None:
    """Keeps libraries silent from here on. What Python itself says is still seen."""
    # Read when TensorFlow and gRPC are imported: a program tells errors itself, in a line.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # TensorFlow's libraries greet while they are imported, whatever that level.
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def let_libraries_speak() -> None:
    """Undoes `silence_imports`, but for the libraries' warnings."""
    with contextlib.suppress(OSError):
        os.dup2(sys.stderr.fileno(), 2)
    for library in ("absl", "tensorflow"):
        logging.getLogger(library).setLevel(logging.ERROR)

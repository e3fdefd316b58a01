"""Hides what TensorFlow and gRPC print while a program imports them."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator


def is_program_starting() -> bool:
    """Returns whether Python has been started with `-m` and is about to import the program."""
    return sys.argv[0] == "-m"


def silence_imports() -> None:
    """Keeps libraries silent from now on. Python's own messages are still shown."""
    # TensorFlow and gRPC read these when they are imported. Programs report errors themselves.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # At any level, TensorFlow's libraries print lines while they are imported.
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


@contextlib.contextmanager
def silent_imports() -> Iterator[None]:
    """Keeps libraries silent in the body of a `with` statement, for what is not always imported."""
    spoken = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(spoken, 2)
        os.close(spoken)


def let_libraries_speak() -> None:
    """Undoes `silence_imports`, but keeps the libraries' warnings hidden."""
    with contextlib.suppress(OSError):
        os.dup2(sys.stderr.fileno(), 2)
    for library in ("absl", "tensorflow"):
        logging.getLogger(library).setLevel(logging.ERROR)

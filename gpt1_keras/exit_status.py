"""How programs end: their exit status, errors of the input in one line, signals."""

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

# The names of nodes and operations that TensorFlow puts before and after its messages.
_NODE = re.compile(r"\{\{[^{}]*\}\} ?| ?\[Op:\w+\]( name:.*)?$")

# Of an error in a graph: lines before the message, which say where the graph was made.
_GRAPH_ERROR = "Graph execution error:"
_WHERE = re.compile(r"\s|$|Detected at node |Node: |\d+ root error")

# Of those that end a process without a word, the ones that others send to end it.
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class UsageError(ValueError):
    """Arguments that do not go together: the program prints its usage and exits with 2."""


def exit_status(
    run: Callable[[], int | None],
    interrupted: Callable[[], str] = lambda: "Interrupted.",
    foreseen: tuple[type[Exception], ...] = (),
) -> int:
    """Runs a program, and reports in one line why it could not finish.

    `run` returns the exit status, or None for 0; `interrupted` returns the message after Ctrl-C;
    `foreseen` are further classes of errors to report in one line.

    SIGTERM and SIGHUP interrupt as Ctrl-C does, so what is half written is removed. A second one
    ends the process at once.

    Returns:
        The exit status: 1 after an error of the input or the machine (`ValueError`, `OSError`,
        `ImportError`, `tf.errors.OpError`), 130 after Ctrl-C, or 128 and the number of the signal
        that a KeyboardInterrupt has as its argument: 143 for SIGTERM. Other errors are faults of
        this package, and keep their traceback.
    """
    try:
        with signals_handled(_interrupt, *_ENDING):
            status = run() or 0
            sys.stdout.flush()
        return status
    except UsageError:
        raise
    except BrokenPipeError:
        # What read the output, such as `head`, has ended, so nobody would see a message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as error:
        print(f"\n{interrupted()}", file=sys.stderr)
        return 128 + (error.args[0] if error.args else signal.SIGINT)
    except Exception as error:
        if not (_is_foreseen(error) or isinstance(error, foreseen)):
            raise
        print(f"error: {_first_line(error)}", file=sys.stderr)
        return 1


@contextlib.contextmanager
def signals_handled(
    handler: Callable[[int, FrameType | None], Any], *numbers: signal.Signals
) -> Iterator[None]:
    """Handles signals by a function. One that is ignored, as Ctrl-C in the background, stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield  # other threads get no signals
        return
    before = {number: signal.getsignal(number) for number in numbers}
    handled = [each for each in numbers if before[each] not in (signal.SIG_IGN, None)]
    try:
        for number in handled:
            signal.signal(number, handler)
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Raises KeyboardInterrupt for a signal. It leaves a second one to the system."""
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt(number)


def _is_foreseen(error: Exception) -> bool:
    if isinstance(error, (ValueError, OSError, ImportError)):
        return True
    tensorflow = sys.modules.get("tensorflow")  # if not imported, it raised nothing
    return tensorflow is not None and isinstance(error, tensorflow.errors.OpError)


def _first_line(error: Exception) -> str:
    """Returns an error's message without the graph's nodes, which TensorFlow adds to it."""
    lines = str(getattr(error, "message", None) or error).splitlines()
    if lines[:1] == [_GRAPH_ERROR]:
        lines = [line for line in lines[1:] if not _WHERE.match(line)] or lines
    line = _NODE.sub("", lines[0]).strip() if lines else ""
    return line or type(error).__name__

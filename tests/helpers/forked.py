"""Processes forked from one that has imported TensorFlow, so that they start at once."""

import contextlib
import multiprocessing
import os

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tensorflow", "keras_hub", "training.runs.pretraining"])


def start(function, *arguments, log, environment=None):
    """Starts `function(*arguments)` in a process that prints into the file `log`.

    The function is one of a module, not of a class or of another function.
    """
    process = _CONTEXT.Process(target=_run, args=(function, arguments, str(log), environment or {}))
    process.start()
    return process


def _run(function, arguments, log, environment):
    os.environ.update(environment)
    with open(log, "a") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        function(*arguments)

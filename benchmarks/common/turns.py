"""Processes that take turns, so that a machine's changing speed affects all alike.

Before each turn, a process waits for a line on its standard input; after it, it answers with a line
of JSON on its standard output. After the last turn comes one more line, its summary; and then it
waits to be stopped, as a process that ends takes time from those that still work.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

REST = 0.3  # seconds between turns, because threads spin for a while after their work


class Turns:
    """The side of the process that works."""

    def begin(self):
        """Waits for the next turn."""
        sys.stdin.readline()
        self._started = time.perf_counter()

    def end(self, **facts):
        """Answers with the facts and the seconds that the turn took."""
        _tell(seconds=time.perf_counter() - self._started, **facts)


def summarize(**facts):
    """Answers with the process's last facts, and waits to be stopped."""
    _tell(**facts)
    sys.stdin.read()


def _tell(**facts):
    print(json.dumps(facts), flush=True)


class Worker:
    """The side of the process that hands out the turns.

    Args:
        module: str, a module of `benchmarks`.
        *arguments: its arguments.

    Raises:
        RuntimeError: from `turn` and `summary`, if the process has died; with what it printed.
    """

    def __init__(self, module, *arguments):
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ},
        )

    def turn(self):
        """Lets the process work, and returns its facts, a dict."""
        time.sleep(REST)
        with contextlib.suppress(BrokenPipeError):  # a dead process does not read
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return self._read()

    def summary(self):
        """What the process reports after its last turn, a dict."""
        return self._read()

    def stop(self):
        """Ends the process, wherever it is."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _read(self):
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(
                f"exit status {self._process.returncode}\n{self._errors.read()[-4000:]}"
            )
        return json.loads(line)

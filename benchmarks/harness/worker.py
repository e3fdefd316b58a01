"""Processes that take turns, because frameworks in one process disturb each other.

    python -m benchmarks.harness.worker MODULE:FUNCTION [CHECKOUT]

It calls a function of a module of `benchmarks` with `Turns` and with the arguments that come as a
line of JSON. Before each turn it waits for a line on its standard input; after it, it answers with
a line of JSON on its standard output. After the last turn comes one more line, the facts that the
function returns, its summary; then it waits to be stopped, as a process that ends takes time from
those that still work. With a checkout of another commit, `gpt1_keras` is that one's.
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time


class Turns:
    """The side of the process that works.

    Args:
        answers: text file that the answers are written to.
    """

    def __init__(self, answers):
        self._answers = answers

    def begin(self):
        """Waits for the next turn."""
        sys.stdin.readline()
        self._started = time.perf_counter()

    def end(self, **facts):
        """Answers with the facts and the seconds that the turn took."""
        self.tell(seconds=time.perf_counter() - self._started, **facts)

    def tell(self, **facts):
        """Answers with a line of JSON."""
        print(json.dumps(facts), file=self._answers, flush=True)


class Worker:
    """The side of the process that hands out the turns; a context, which ends the process.

    Args:
        function: `module:function`, of `benchmarks`.
        checkout: folder of another commit's `gpt1_keras`, or None.
        environment: dict of str, variables of the process besides this one's.
        **arguments: of the function, which JSON can hold.

    Attributes:
        pid: of the process.

    Raises:
        RuntimeError: from `turn` and `summary`, if the process has died; with what it printed.
    """

    def __init__(self, function, checkout=None, environment=None, **arguments):
        command = [sys.executable, "-m", "benchmarks.harness.worker", function]
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [*command, *filter(None, [checkout])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, **(environment or {})},
        )
        self.pid = self._process.pid
        self._write(json.dumps(arguments))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def turn(self):
        """Lets the process work, and returns its facts, a dict."""
        self._write("")
        return self.summary()

    def summary(self):
        """What the process reports after its last turn, a dict."""
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(
                f"exit status {self._process.returncode}\n{self._errors.read()[-4000:]}"
            )
        return json.loads(line)

    def is_running(self):
        """Whether the process has not ended."""
        return self._process.poll() is None

    def _write(self, line):
        with contextlib.suppress(BrokenPipeError):  # a dead process does not read
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()


def main():
    module, _, function = sys.argv[1].partition(":")
    sys.path[:0] = sys.argv[2:]  # `benchmarks` itself is imported already
    turns = Turns(sys.stdout)
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print is no answer
        work = getattr(importlib.import_module(f"benchmarks.{module}"), function)
        summary = work(turns, **json.loads(sys.stdin.readline()))
    turns.tell(**(summary or {}))
    sys.stdin.read()


if __name__ == "__main__":
    main()

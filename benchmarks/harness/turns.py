"""Turns: things are timed alternately, so that a machine's changing speed affects all equally.

Results are medians over the rounds, and medians of the ratios of neighbouring turns.

Frameworks in one process disturb each other, so each takes its turns in a process of its own:

    python -m benchmarks.harness.turns MODULE:FUNCTION [CHECKOUT]

The process reads arguments as a line of JSON from its standard input, and calls a function of a
module of `benchmarks` with `Turns` and these arguments. Before each turn it waits for a line on its
standard input; after the turn it writes a line of JSON to its standard output. After the last turn
it writes one more line, the summary: the dict that the function returns. Then it waits to be
stopped, because a process that ends takes time from those that still work. CHECKOUT is a checkout
of another commit, whose `gpt1_keras` is then used.
"""

import contextlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

REST = 0.3  # seconds between turns, because threads spin for a while after their work


def alternate(turns, rounds, warmup=1, rest=0.0):
    """Calls functions one after another, in each of the rounds.

    Args:
        turns: functions without arguments, by name.
        rounds: int, how often each is called.
        warmup: int, earlier rounds whose results are left out.
        rest: seconds to wait before each call.

    Returns:
        What the functions returned, lists of `rounds` results, by name.
    """
    results = {name: [] for name in turns}
    for _ in range(warmup + rounds):
        for name, turn in turns.items():
            time.sleep(rest)
            results[name].append(turn())
    return {name: found[warmup:] for name, found in results.items()}


def timed(function, *arguments):
    """Makes a turn that calls a function and returns the seconds that the call took."""

    def turn():
        started = time.perf_counter()
        function(*arguments)
        return time.perf_counter() - started

    return turn


def speedup(ours, others):
    """Returns how many times as fast ours is: the median ratio of neighbouring turns' seconds."""
    return statistics.median(other / our for our, other in zip(ours, others, strict=True))


class Turns:
    """Turns, as the working process sees them.

    Args:
        answers: text file to write the lines of JSON to.
    """

    def __init__(self, answers):
        self._answers = answers

    def begin(self):
        """Waits for the next turn."""
        sys.stdin.readline()
        self._started = time.perf_counter()

    def end(self, **facts):
        """Reports the facts and the seconds that the turn took."""
        self.tell(seconds=time.perf_counter() - self._started, **facts)

    def tell(self, **facts):
        """Writes facts as a line of JSON."""
        print(json.dumps(facts), file=self._answers, flush=True)


class Worker:
    """A working process, as the process that gives it turns sees it; a context, which ends it.

    Args:
        function: `module:function`, of `benchmarks`.
        checkout: folder of another commit's `gpt1_keras`, or None.
        environment: dict of str, environment variables besides those of this process.
        **arguments: arguments of the function, JSON values.

    Raises:
        RuntimeError: from `turn` and `summary`, if the process has died; with its output.
    """

    def __init__(self, function, checkout=None, environment=None, **arguments):
        command = [sys.executable, "-m", "benchmarks.harness.turns", function]
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
        """Returns what the process reports after its last turn, a dict."""
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(
                f"exit status {self._process.returncode}\n{self._errors.read()[-4000:]}"
            )
        return json.loads(line)

    def is_running(self):
        """Returns whether the process has not ended."""
        return self._process.poll() is None

    def _write(self, line):
        with contextlib.suppress(BrokenPipeError):  # a dead process does not read
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()


def main():
    module, _, function = sys.argv[1].partition(":")
    sys.path[:0] = sys.argv[2:]  # `benchmarks` itself is imported already
    turns = Turns(sys.stdout)
    with contextlib.redirect_stdout(sys.stderr):  # lines of libraries would mix with ours
        work = getattr(importlib.import_module(f"benchmarks.{module}"), function)
        summary = work(turns, **json.loads(sys.stdin.readline()))
    turns.tell(**(summary or {}))
    sys.stdin.read()


if __name__ == "__main__":
    main()

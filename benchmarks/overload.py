"""How a server answers at twice its capacity: goodput, refusals, latencies.

    python -m benchmarks.overload

First it measures the capacity: answers per second to 32 clients, each of which asks again after an
answer. Then requests arrive at that rate and at twice that rate, whether earlier ones are answered
or not, like those of many independent clients. Goodput is the number of answers per second within
the time that a client waits; the queue of `serving.server` is bounded (`--max_queued_requests`).
Clients share the server's cores; with --apart, each side has half of the cores. The machine must be
idle.
"""

import collections
import contextlib
import os
import sys
import tempfile
import threading
import time

from benchmarks.harness.load import GrpcLoad, HttpLoad, arrive, measure, percentiles
from benchmarks.harness.measured_models import export_missing
from benchmarks.harness.program import Program, table
from benchmarks.harness.servers import serve_export
from gpt1_keras.cli import exit_status

_CLIENTS = 32
_TEXTS = ["a joy to watch", "a waste of time, and a long one", "the staff were kind " * 8]


def main():
    program = Program("overload", __doc__, "--tokenizer", "--size")
    what = "of a measurement (default: %(default)s)"
    program.add("--seconds", type=float, default=20, help=what)
    what = "seconds that a client waits (default: %(default)s)"
    program.add("--patience", type=float, default=10, help=what)
    what = "the server on half of the cores, clients on the other"
    program.add("--apart", action="store_true", help=what)
    options = program.parse()
    with tempfile.TemporaryDirectory() as folder:
        exports = export_missing(["unmerged"], options.size, options.tokenizer, folder)
        rows = _measure(exports["unmerged"], options)
    facts = (
        f"Size {options.size!r}, {options.seconds:g} s each; clients wait {options.patience:g} s."
    )
    header = ["protocol", "arrivals", "answers/s", "/ capacity", "refused", "late"]
    program.report(facts, table([*header, "p99, ms"], rows, labels=2))


def _measure(path, options):
    """Returns the rows of the table."""
    rows = []
    with contextlib.ExitStack() as stack:
        with _on(0) if options.apart else contextlib.nullcontext():
            _, port, rest_port = stack.enter_context(serve_export(path))
        if options.apart:
            stack.enter_context(_on(1))
        documents = [{"instances": [text]} for text in _TEXTS]
        loads = {
            "gRPC": GrpcLoad(port, "model", _TEXTS),
            "REST": HttpLoad(rest_port, "/v1/models/model:predict", documents),
        }
        for name, load in loads.items():
            measure(load.client, len(_TEXTS), _CLIENTS, requests=2 * _CLIENTS)  # warms up
            capacity = measure(load.client, len(_TEXTS), _CLIENTS, seconds=options.seconds).rate
            rows.append([name, "capacity", f"{capacity:.0f}", "1.00", "", "", ""])
            for factor in (1, 2):
                goodput, *rest = _arrivals(load, factor * capacity, options)
                share = f"{goodput / capacity:.2f}"
                rows.append([name, f"{factor} x", f"{goodput:.0f}", share, *rest])
    return rows


@contextlib.contextmanager
def _on(half):
    """Runs what starts in this context, threads or processes, on half of the cores: 0 or 1."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[half::2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _arrivals(load, rate, options):
    """Sends requests at a rate; returns answers a second, refusals, late answers, and p99 in ms."""
    counts, latencies, clients = collections.Counter(), [], threading.local()

    def ask(number, due):
        if not hasattr(clients, "ask"):
            clients.ask = load.client()
        try:
            clients.ask(number % len(_TEXTS))
        except Exception as error:
            refused = "RESOURCE_EXHAUSTED" in str(error) or "HTTP 429" in str(error)
            counts["refused" if refused else "failed"] += 1
            return
        latency = time.perf_counter() - due
        counts["late" if latency > options.patience else "answered"] += 1
        latencies.append(latency)

    begin = time.perf_counter()
    arrive(ask, rate, options.seconds)
    if counts["failed"]:
        raise SystemExit(f"{counts['failed']} requests failed")
    # Requests that were waiting when the last one arrived were answered afterwards.
    spent = max(options.seconds, time.perf_counter() - begin)
    refused, late = str(counts["refused"]), str(counts["late"])
    return counts["answered"] / spent, refused, late, *percentiles(latencies, 99)


if __name__ == "__main__":
    sys.exit(exit_status(main))

"""What a server still answers at twice its capacity: goodput, refusals, latencies.

    python -m benchmarks.overload --tokenizer DIR

First the capacity: answers a second to 32 clients, each of which asks again once it is answered.
Then requests arrive at that rate and at twice that rate, whether earlier ones are answered or not,
as those of many independent clients do. Goodput is what is answered within the time that a client
waits. The queue of `serving.server` is bounded (`--max_queued_requests`); with --unbounded, it is
measured without a bound too. The clients use the server's cores, and at twice the capacity twice as
much of them; with --apart, each side has half of the cores. The machine must be idle.
"""

import argparse
import collections
import contextlib
import os
import shlex
import sys
import tempfile
import threading
import time

import numpy as np

from benchmarks.common.load import GrpcLoad, HttpLoad, arrive, measure
from benchmarks.common.setting import SIZES, describe, table
from benchmarks.serving import random_exports, serving

_CLIENTS = 32
_MANY = 100_000  # requests that may wait where the queue has no bound
_TEXTS = ["a joy to watch", "a waste of time, and a long one", "the staff were kind " * 8]


def main():
    options = _parser().parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = list(random_exports(options.size, options.tokenizer, folder).values())[-1]
        bounds = {"bounded": []}
        if options.unbounded:
            bounds["unbounded"] = [f"--max_queued_requests={_MANY}"]
        for bound, flags in bounds.items():
            with contextlib.ExitStack() as stack:
                with _on(0) if options.apart else contextlib.nullcontext():
                    _, port, rest_port = stack.enter_context(serving(path, *flags))
                if options.apart:
                    stack.enter_context(_on(1))
                documents = [{"instances": [text]} for text in _TEXTS]
                loads = {
                    "gRPC": GrpcLoad(port, "model", _TEXTS),
                    "REST": HttpLoad(rest_port, "/v1/models/model:predict", documents),
                }
                for name, load in loads.items():
                    measure(load, len(_TEXTS), _CLIENTS, requests=2 * _CLIENTS)  # warms up
                    capacity = measure(load, len(_TEXTS), _CLIENTS, seconds=options.seconds).rate
                    rows.append([bound, name, "capacity", f"{capacity:.0f}", "1.00", "", "", ""])
                    for factor in (1, 2):
                        row = _open_loop(load, factor * capacity, options.seconds, options.patience)
                        goodput, *rest = row
                        share = f"{goodput / capacity:.2f}"
                        rows.append([bound, name, f"{factor} x", f"{goodput:.0f}", share, *rest])
    header = ["queue", "door", "arrivals", "answers/s", "/ capacity", "refused", "late", "p99, ms"]
    command = shlex.join(["python", "-m", "benchmarks.overload", *sys.argv[1:]])
    print(
        f"{describe()}. Size {options.size!r}, {options.seconds:g} s each; clients wait "
        f"{options.patience:g} s. `{command}`\n\n{table(header, rows, labels=3)}"
    )


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overload",
        description="What a server still answers at twice its capacity.",
    )
    parser.add_argument(
        "--tokenizer", required=True, help="folder of encoder_bpe_40000.json and vocab_40000.bpe"
    )
    parser.add_argument("--size", choices=SIZES, default="paper", help="default: paper")
    parser.add_argument("--seconds", type=float, default=20, help="of a measurement (default: 20)")
    parser.add_argument(
        "--patience", type=float, default=10, help="seconds that a client waits (default: 10)"
    )
    parser.add_argument("--unbounded", action="store_true", help="also without a bounded queue")
    parser.add_argument(
        "--apart", action="store_true", help="the server on half of the cores, clients on the other"
    )
    return parser


@contextlib.contextmanager
def _on(half):
    """Threads and processes that are started meanwhile are on half of the cores: 0 or 1."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[half::2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _open_loop(load, rate, seconds, patience):
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
        counts["late" if latency > patience else "answered"] += 1
        latencies.append(latency)

    begin = time.perf_counter()
    arrive(ask, rate, seconds)
    if counts["failed"]:
        raise SystemExit(f"{counts['failed']} requests failed")
    # Those that were still waiting when the last one arrived were answered afterwards.
    spent = max(seconds, time.perf_counter() - begin)
    p99 = 1e3 * np.percentile(latencies, 99)
    refused, late = str(counts["refused"]), str(counts["late"])
    return counts["answered"] / spent, refused, late, f"{p99:.0f}"


if __name__ == "__main__":
    main()

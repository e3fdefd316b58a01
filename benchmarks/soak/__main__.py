"""A server at twice its capacity for half an hour, under faults of all kinds.

    python -m benchmarks.soak

Two different classifiers, fine-tuned from the preset gpt1_tiny_books, are the versions of one model
under `serving.server`, in a process of its own. Requests of all kinds arrive over gRPC and REST, at
twice the rate that the server can answer; some are malformed, oversized or abandoned half-way.
Meanwhile versions are swapped, copied slowly, broken and deleted, and a limit on the size of files
stops copies as a full disk does. Each answer is compared with that of the same version's model in
Keras. All traffic stays on loopback.

The program ends with status 1 if an answer was wrong, if a request ended in a way that is not
allowed, if a version did not reach the state that it should, or if threads, descriptors or memory
stay above their level at the start.
"""

import array
import collections
import pathlib
import shutil
import sys
import tempfile
import threading
import time

import keras
import numpy as np
import psutil

import gpt1_keras
from benchmarks.harness.load import arrive, measure, percentiles
from benchmarks.harness.program import Program, table
from benchmarks.harness.servers import serve_export
from benchmarks.soak.faults import Faults
from benchmarks.soak.request_mix import LABELS, TEXTS, Answers, Mix
from serving.export import export

_CLIENTS = 32
_PATIENCE = 10.0  # seconds after which a waiting client does not send its request any more
_BURST = 5  # times the capacity, before the start
_MOST_THREADS = 400  # more than the server starts for calls over gRPC
_SETTLED = 10.0  # seconds in which the server closes connections that clients have left
_SAMPLES = 5.0  # seconds between samples
_MORE_MEMORY = 1.1  # times the memory at the start
_MORE_THREADS = 16


def main():
    program = Program("soak", __doc__)
    program.add("--minutes", type=float, default=30, help="of load (default: %(default)s)")
    program.add("--requests", type=int, help="number of requests, instead of --minutes")
    options = program.parse()
    with tempfile.TemporaryDirectory() as folder:
        exports, scores = _exports(folder)
        facts, tables, is_clean = _soak(folder, exports, scores, options)
    program.report(facts, *tables)
    return 0 if is_clean else 1


def _exports(folder):
    """Fine-tunes and exports two classifiers; returns their folders, and their scores for TEXTS."""
    paths, scores = [], []
    for labels in (LABELS, LABELS[::-1]):
        keras.utils.set_random_seed(0)
        classifier = gpt1_keras.GPT1TextClassifier.from_preset(
            "gpt1_tiny_books", class_names=LABELS
        )
        classifier.compile(optimizer=keras.optimizers.Adam(1e-4), loss="auto", run_eagerly=True)
        classifier.fit(TEXTS, [labels[row % 2] for row in range(len(TEXTS))], epochs=5, verbose=0)
        path = f"{folder}/{labels[0]}"
        paths.append(export(classifier, path, "model"))
        logits = classifier.predict(TEXTS, verbose=0)
        scores.append(keras.ops.convert_to_numpy(keras.ops.softmax(logits)))
    if np.abs(scores[0] - scores[1]).max(axis=-1).min() < 0.01:
        raise SystemExit("The two versions hardly differ.")
    return paths, scores


class _Tally:
    """Counts how requests ended, and keeps the latencies of those that were answered."""

    def __init__(self, mix):
        self._mix = mix
        self._lock = threading.Lock()
        self.outcomes = collections.defaultdict(collections.Counter)
        self.latencies = collections.defaultdict(lambda: array.array("f"))
        self.not_sent = 0

    def ask(self, number, due):
        """Sends a request, unless its client has given up."""
        if time.perf_counter() - due > _PATIENCE:
            with self._lock:
                self.not_sent += 1
            return
        kind = self._mix.kinds[number % len(self._mix.kinds)]
        outcome = self._mix.ask(number)
        latency = time.perf_counter() - due
        with self._lock:
            self.outcomes[kind][outcome] += 1
            if outcome == "OK":
                self.latencies[kind].append(latency)


def _soak(folder, exports, scores, options):
    """Runs the load and the faults; returns what `_report` does."""
    base, monitoring = f"{folder}/model", pathlib.Path(f"{folder}/monitoring")
    monitoring.write_text('prometheus_config { enable: true path: "/metrics" }')
    shutil.copytree(exports[1], f"{base}/1")
    log = pathlib.Path(f"{folder}/log")
    with (
        log.open("w") as file,
        serve_export(base, f"--monitoring_config_file={monitoring}", log=file) as (pid, *ports),
    ):
        answers = Answers(scores)
        mix = Mix(*ports, answers)
        faults = Faults(exports, base, ports[0], answers)
        # The requests that get an answer.
        numbers = [i for i, kind in enumerate(mix.kinds) if "OK" in mix.expected[kind]]

        def client():
            return lambda index: mix.ask(numbers[index % len(numbers)])

        measure(client, len(numbers), _CLIENTS, requests=len(numbers))  # warms up
        capacity = measure(client, len(numbers), _CLIENTS, seconds=15.0).rate
        # After this, the server has what it allocates once: gRPC's threads, and their memory.
        mix.begin(_MOST_THREADS, 2.0)
        arrive(lambda number, _: client()(number), _BURST * capacity, 15.0)
        for _ in range(2):
            faults.swap()
        time.sleep(_SETTLED)
        server = psutil.Process(pid)
        samples, tally, ended = [_sample(server)], _Tally(mix), threading.Event()
        workers = [
            threading.Thread(target=faults.run),
            threading.Thread(target=_watch, args=(server, samples, ended)),
        ]
        for worker in workers:
            worker.start()
        rate = 2 * capacity
        spent = arrive(
            tally.ask, rate, options.requests / rate if options.requests else 60 * options.minutes
        )
        faults.stop()
        ended.set()
        for worker in workers:
            worker.join()
        time.sleep(_SETTLED)
        samples.append(_sample(server))
    tracebacks = log.read_text(errors="replace").count("Traceback")
    return _report(capacity, spent, tally, mix.expected, samples, faults, tracebacks)


def _sample(server):
    """Returns a process's memory in MB, and its numbers of threads and file descriptors."""
    return server.memory_info().rss / 2**20, server.num_threads(), server.num_fds()


def _watch(server, samples, ended):
    """Appends a sample every `_SAMPLES` seconds."""
    while not ended.wait(_SAMPLES):
        samples.append(_sample(server))


def _report(capacity, spent, tally, expected, samples, faults, tracebacks):
    """Returns facts, tables, and whether the server did all that it should."""
    rows, sent = [], 0
    totals = collections.Counter()
    for kind, allowed in expected.items():
        outcomes = tally.outcomes[kind]
        sent += outcomes.total()
        wrong = outcomes.pop("WRONG", 0)
        unexpected = sum(outcomes[outcome] for outcome in outcomes.keys() - allowed)
        totals += collections.Counter(outcomes, wrong=wrong, unexpected=unexpected)
        rows.append(_row(kind, outcomes, wrong, unexpected, tally.latencies[kind]))
    wrong, unexpected = totals.pop("wrong", 0), totals.pop("unexpected", 0)
    rows.append(_row("all", totals, wrong, unexpected, np.concatenate([*tally.latencies.values()])))
    start, middle, end = samples[0], samples[len(samples) // 2], samples[-1]
    most = [max(column) for column in zip(*samples, strict=True)]
    figures = zip(("memory, MB", "threads", "descriptors"), start, middle, end, most, strict=True)
    is_back = (
        end[0] <= _MORE_MEMORY * start[0]
        and end[1] <= start[1] + _MORE_THREADS
        and end[2] <= start[2]
    )
    is_clean = is_back and not (wrong or unexpected or faults.failures or tracebacks)
    caused = ", ".join(f"{name} {count}" for name, count in sorted(faults.counts.items()))
    facts = (
        f"Capacity {capacity:.0f} requests/s. In {spent / 60:.1f} minutes {sent:,} were sent, "
        f"{sent / spent:.0f}/s, and {tally.not_sent:,} were not, as no client was free."
    )
    header = [
        "request",
        "sent",
        "wrong",
        "p50, ms",
        "p99, ms",
        "most, ms",
        "unexpected",
        "how they ended",
    ]
    levels = [[name, *(f"{value:.0f}" for value in values)] for name, *values in figures]
    versions = (
        f"Versions: {caused}. "
        f"What did not become what it should: {'; '.join(faults.failures) or 'none'}. "
        f"Tracebacks in the log: {tracebacks}. Back to the start's level (memory within "
        f"{_MORE_MEMORY - 1:.0%}, threads within {_MORE_THREADS}): {'yes' if is_back else 'no'}."
    )
    tables = table(header, rows), table(["server", "start", "middle", "end", "most"], levels)
    return facts, (*tables, versions), is_clean


def _row(kind, outcomes, wrong, unexpected, latencies):
    """Returns a row of the table of requests."""
    ended = ", ".join(f"{name} {count:,}" for name, count in outcomes.most_common())
    sent = outcomes.total() + wrong
    times = percentiles(latencies, 50, 99, 100)
    return [kind, f"{sent:,}", f"{wrong:,}", *times, f"{unexpected:,}", ended]


if __name__ == "__main__":
    sys.exit(main())

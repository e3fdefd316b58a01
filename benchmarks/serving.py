"""Served exports in each precision that the machine computes, beside peers' servers.

    python -m benchmarks.serving

Classifiers with random weights are exported in each precision, with batching in the graph, and in
float32 without it; exports that the folder `--exports` holds already are not made again. Each
request has one text, a sentence of SST-2 or a passage of RACE. All servers get the requests, in
turns, from 1, 8 and 32 clients. With `--throughput`, all answer each request by one thread, and as
many at once as there are cores. Ours answer over gRPC, the first also over REST; the peers, the
same model in torch and in other runtimes, answer behind FastAPI. `benchmarks.costs` measures
answers without a server. The machine must be idle.
"""

import contextlib
import statistics
import sys

from benchmarks.harness.machine import cores
from benchmarks.harness.matrix_product import LIMIT, fastest_product, least_flops
from benchmarks.harness.measured_models import SIZES
from benchmarks.harness.program import Program, table
from benchmarks.harness.servers import (
    GrpcLoad,
    HttpLoad,
    measure,
    megabytes,
    percentiles,
    serve_export,
    serve_peer,
)
from benchmarks.harness.texts import mixed_texts
from benchmarks.harness.turns import alternate
from benchmarks.peers import add_peers, measured_here
from benchmarks.peers.classifiers import CLASSIFIERS, make_classifiers
from benchmarks.peers.hugging_face import load_tokenizer
from gpt1_keras.cli import exit_status

_CALIBRATION_TEXTS = 64  # taken from the texts that are not sent


def main():
    program = Program("serving", __doc__, "--data-dir", "--tokenizer", "--exports", "--size")
    add_peers(program, CLASSIFIERS)
    what = "at once (default: 1 8 32)"
    program.add("--clients", nargs="+", type=int, default=[1, 8, 32], help=what)
    what = "of a measurement (default: %(default)s)"
    program.add("--seconds", type=float, default=12, help=what)
    program.add("--rounds", type=int, default=2, help="default: %(default)s")
    what = "answer each request by one thread, on all sides"
    program.add("--throughput", action="store_true", help=what)
    options = program.parse()
    names, left_out = measured_here(options.only, CLASSIFIERS)
    texts = mixed_texts(options.data_dir)
    texts, calibration = texts[:-_CALIBRATION_TEXTS], texts[-_CALIBRATION_TEXTS:]
    paths, setting = make_classifiers(
        names, options.size, options.tokenizer, options.exports, calibration
    )
    flags = []
    if options.throughput:
        setting["callers"] = cores()
        flags = ["--tensorflow_intra_op_parallelism=1"]
    limit = _limit(texts, options)
    with contextlib.ExitStack() as stack:
        servers = _start(stack, names, paths, setting, texts, flags)
        silent = _warm_up(servers, len(texts), options)
        served = _requests(servers, len(texts), options, limit)
    facts = f"Size {options.size!r}; medians of {options.rounds} rounds of {options.seconds:g} s."
    files = [
        f"{_folder_megabytes(path / '1'):.0f} MB in {CLASSIFIERS[name].label}"
        for name, path in paths.items()
    ]
    left_out = "\n".join([left_out, *silent]).strip()
    program.report(f"{facts} Files: {', '.join(files)}.", served, left_out)


def _limit(texts, options):
    """Returns the requests per second whose necessary products alone take the whole machine."""
    tokens = map(len, load_tokenizer(options.tokenizer)(texts)["input_ids"])
    size = SIZES[options.size]
    most = size["max_sequence_length"]
    flops = statistics.mean(least_flops(size, min(each, most)) for each in tokens)
    return 1e9 * fastest_product("float32", options.size) / flops


def _start(stack, names, paths, setting, texts, flags):
    servers = {}
    for name in names:
        label = CLASSIFIERS[name].label
        if name in paths:
            pid, port, rest_port = stack.enter_context(serve_export(paths[name], *flags))
            is_first = not servers
            servers[label] = GrpcLoad(port, "model", texts), pid
            if is_first:
                rows = [{"instances": [text]} for text in texts]
                load = HttpLoad(rest_port, "/v1/models/model:predict", rows)
                servers[f"{label}, REST"] = load, pid
        else:
            pid, port = stack.enter_context(serve_peer(name, **setting))
            rows = [{"texts": [text]} for text in texts]
            servers[f"{label}, FastAPI"] = HttpLoad(port, "/predict", rows), pid
    return servers


def _warm_up(servers, num_texts, options):
    """Lets servers compile what is new to them; removes those that answer nothing.

    Returns:
        A line on each server that was removed.
    """
    lines = []
    for label, (load, _) in list(servers.items()):
        found = measure(load.client, num_texts, max(options.clients), seconds=options.seconds)
        if not found.latencies:
            del servers[label]
            lines.append(f"- Left out: {label}: none of {len(found.errors)} requests was answered")
    return lines


def _requests(servers, num_texts, options, limit):
    rows, first = [], next(iter(servers))
    for concurrency in options.clients:

        def turn(load, concurrency=concurrency):
            return lambda: measure(load.client, num_texts, concurrency, seconds=options.seconds)

        turns = {label: turn(load) for label, (load, _) in servers.items()}
        found = alternate(turns, options.rounds, warmup=0)
        rates = {label: statistics.median(each.rate for each in m) for label, m in found.items()}
        cells = [f"{limit:.1f}", f"{limit / rates[first]:.2f}", "", "", "", ""]
        rows.append([str(concurrency), LIMIT, *cells])
        for label, measurements in found.items():
            latencies = sum((each.latencies for each in measurements), [])
            errors = sum(len(each.errors) for each in measurements)
            cells = [f"{rates[label]:.1f}", f"{rates[label] / rates[first]:.2f}"]
            cells += percentiles(latencies, 50, 99)
            cells += [str(errors), f"{megabytes(servers[label][1]):.0f}"]
            rows.append([str(concurrency), label, *cells])
    header = ["clients", "what", "requests/s", f"/ {first}", "p50, ms", "p99, ms", "errors"]
    return table([*header, "memory, MB"], rows, labels=2)


def _folder_megabytes(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


if __name__ == "__main__":
    sys.exit(exit_status(main))

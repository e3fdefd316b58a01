"""Exports in each precision that the machine computes, beside peers', in one run.

    python -m benchmarks.int8_serving --data-dir DIR --tokenizer DIR --exports DIR

A classifier with random weights is exported in each precision, with batching in the graph; what is
in the folder `--exports` already is served as it is. Requests of one text each, sentences of SST-2
and passages of RACE, mixed, go to all servers in turns, over gRPC, from 1, 8 and 32 clients. The
peers are the same model behind FastAPI, in torch and in others' runtimes. One text of 20 words is
answered without a server: in TensorFlow's C++ runtime, and by the peers' runtimes in this process.
What the machine cannot compute, such as 8-bit products without AVX512-VNNI or the like, is left
out, with a line that says so. The machine must be idle.
"""

import argparse
import contextlib
import functools
import pathlib
import shlex
import statistics
import sys
import time

import numpy as np
import tensorflow as tf

from benchmarks.common.limit import least_flops
from benchmarks.common.load import GrpcLoad, HttpLoad, measure
from benchmarks.common.precisions import PRECISIONS, export_missing, make_peers, measured_here
from benchmarks.common.setting import SIZES, describe, table
from benchmarks.common.turns import REST, Worker
from benchmarks.matrix_product import FRAMEWORKS
from benchmarks.peers.classifiers import PEERS, load_tokenizer, peer_scores, why_not_peer
from benchmarks.serving import mixed_texts, peer, serving
from serving.export_names import DEFAULT_SIGNATURE
from serving.server.models.servable import Servable

LIMIT = "limit, float32"
_WORDS = 20
_CALIBRATION_TEXTS = 64  # from those that are not asked about
_PRODUCTS = 4  # measurements of the fastest product, of which the first warms up


def main():
    options = _parser().parse_args()
    texts = mixed_texts(options.data_dir)
    asked, others = texts[:-_CALIBRATION_TEXTS], texts[-_CALIBRATION_TEXTS:]
    precisions, left_out = measured_here(options.precisions)
    peers, lines = measured_here(options.peers, why_not_peer)
    arguments = (options.exports, options.size, options.tokenizer, others)
    paths = export_missing(precisions, *arguments)
    commands = make_peers(peers, *arguments)
    if options.only_export:
        return
    limit = _limit(asked, options)
    alone = _one_text(paths, peers, asked, options)
    with contextlib.ExitStack() as stack:
        loads = {}
        for name, path in paths.items():
            _, port, _ = stack.enter_context(serving(path))
            loads[f"gpt1_keras, {name}"] = GrpcLoad(port, "model", asked)
        for name, command in commands.items():
            _, port = stack.enter_context(peer(*command))
            documents = [{"texts": [text]} for text in asked]
            loads[f"{PEERS[name]}, FastAPI"] = HttpLoad(port, "/predict", documents)
        silent = _warm_up(loads, len(asked), options)
        loads = {name: load for name, load in loads.items() if name not in silent}
        served = _requests(loads, len(asked), options, limit)
    sizes = ", ".join(f"{_megabytes(path / '1'):.0f} MB in {name}" for name, path in paths.items())
    command = shlex.join(["python", "-m", "benchmarks.int8_serving", *sys.argv[1:]])
    print(
        f"{describe()}. Size {options.size!r}; our files have {sizes}. Medians of {options.rounds} "
        f"rounds of {options.seconds:g} s. `{command}`\n\n{alone}\n\n{served}\n"
        + "".join(f"\n{line}" for line in [*left_out, *lines, *silent.values()])
    )


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.int8_serving",
        description="Exports in each precision that the machine computes, beside peers'.",
    )
    parser.add_argument("--data-dir", help="folder of TensorFlow Datasets with SST-2 and RACE")
    parser.add_argument(
        "--tokenizer", required=True, help="folder of encoder_bpe_40000.json and vocab_40000.bpe"
    )
    parser.add_argument("--exports", required=True, help="folder of the exports, made if missing")
    parser.add_argument("--size", choices=SIZES, default="paper", help="default: paper")
    what = "default: all that this machine computes"
    parser.add_argument(
        "--precisions", nargs="+", choices=PRECISIONS, default=[*PRECISIONS], help=what
    )
    parser.add_argument(
        "--peers", nargs="*", choices=PEERS, default=[*PEERS], help=f"{what} and has packages for"
    )
    parser.add_argument(
        "--clients", nargs="+", type=int, default=[1, 8, 32], help="at once (default: 1 8 32)"
    )
    parser.add_argument("--seconds", type=float, default=12, help="of a measurement (default: 12)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds (default: 2)")
    parser.add_argument(
        "--repetitions", type=int, default=40, help="of one text alone (default: 40)"
    )
    parser.add_argument("--only-export", action="store_true", help="measure nothing")
    return parser


def _limit(texts, options):
    """Requests a second of which the least products take all of the machine."""
    tokens = map(len, load_tokenizer(options.tokenizer)(texts)["input_ids"])
    size = SIZES[options.size]
    flops = statistics.mean(
        least_flops(size, min(each, size["max_sequence_length"])) for each in tokens
    )
    arguments = ["--size", options.size, "--dtype", "float32", "--turns", _PRODUCTS]
    with contextlib.ExitStack() as stack:
        workers = [Worker("matrix_product", name, *arguments) for name in FRAMEWORKS]
        for worker in workers:
            stack.callback(worker.stop)
        speeds = [max(each.turn()["gigaflops"] for each in workers) for _ in range(_PRODUCTS)]
    return 1e9 * statistics.median(speeds[1:]) / flops


def _one_text(paths, peers, texts, options):
    """The table of the latency of one text, which is answered by all in turns."""
    text = next(text for text in texts if len(text.split()) == _WORDS)
    protos = {"text": tf.make_tensor_proto([text])}
    asks = {}
    for name, path in paths.items():
        servable = Servable(name, 1, path / "1")
        asks[f"gpt1_keras, {name}"] = functools.partial(servable.predict, DEFAULT_SIGNATURE, protos)
    folder = pathlib.Path(options.exports) / "peers"
    for name in peers:
        if not name.startswith("torch"):  # whose threads wait for each other, beside others'
            scores_of = peer_scores(name, options.size, options.tokenizer, folder)
            asks[f"{PEERS[name]}, in process"] = functools.partial(scores_of, [text])
    seconds = {name: [] for name in asks}
    for _ in range(options.repetitions):
        for name, ask in asks.items():
            time.sleep(REST)
            started = time.perf_counter()
            ask()
            seconds[name].append(time.perf_counter() - started)
    # The first are slower: what is new to the runtime is compiled.
    medians = {name: statistics.median(each[3:]) for name, each in seconds.items()}
    first = next(iter(medians))
    rows = [
        [name, f"{1e3 * median:.1f}", f"{median / medians[first]:.2f}"]
        for name, median in medians.items()
    ]
    return table([f"one text of {_WORDS} words", "p50, ms", f"/ {first}"], rows)


def _warm_up(loads, num_texts, options):
    """Lets servers compile what is new to them; returns a line on each that answers nothing."""
    silent = {}
    for name, load in loads.items():
        found = measure(load, num_texts, max(options.clients), seconds=options.seconds)
        if not len(found.latencies):
            silent[name] = f"- Left out: {name}: none of {len(found.errors)} requests was answered"
    return silent


def _requests(loads, num_texts, options, limit):
    """The table of requests a second of all servers, in turns."""
    rows, first = [], next(iter(loads))
    for concurrency in options.clients:
        rounds = [
            {
                name: measure(load, num_texts, concurrency, seconds=options.seconds)
                for name, load in loads.items()
            }
            for _ in range(options.rounds)
        ]
        rates = {name: statistics.median(each[name].rate for each in rounds) for name in loads}
        rows.append(
            [str(concurrency), LIMIT, f"{limit:.1f}", f"{limit / rates[first]:.2f}", "", ""]
        )
        for name, rate in rates.items():
            latencies = 1e3 * np.concatenate([each[name].latencies for each in rounds])
            errors = sum(len(each[name].errors) for each in rounds)
            p50 = f"{np.median(latencies):.0f}" if len(latencies) else "no answers"
            cells = [f"{rate:.1f}", f"{rate / rates[first]:.2f}", p50, str(errors)]
            rows.append([str(concurrency), name, *cells])
    header = ["clients", "what", "requests/s", f"/ {first}", "p50, ms", "errors"]
    return table(header, rows, labels=2)


def _megabytes(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


if __name__ == "__main__":
    main()

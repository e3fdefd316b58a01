"""Requests per second, latencies and memory of served models, beside a peer, in one run.

    python -m benchmarks.serving --data-dir DIR --tokenizer DIR

Ours is an export under `serving.server`, over gRPC and REST, with batching inside the graph and
without; the peer is Hugging Face's torch model with its fast tokenizer behind a plain FastAPI
endpoint. Both have the same size and random weights, and get one text a request: sentences of SST-2
and passages of RACE, mixed. They are asked in turns, by 1, 8 and 32 clients at once. With --export,
your exports are served instead of ours. With --soak, many requests go to the first, and its
memory is watched. The machine must be idle.
"""

import argparse
import contextlib
import pathlib
import random
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np
import psutil
import tensorflow_datasets as tfds

import gpt1_keras
from benchmarks.common.load import GrpcLoad, HttpLoad, measure
from benchmarks.common.setting import SIZES, describe, table
from serving.export import export
from serving.export.export_options import Batching

_CONCURRENCIES = (1, 8, 32)
_NUM_TEXTS = 1000
OURS = "gpt1_keras"
_PEER = "Hugging Face, FastAPI"


def main():
    options = _parser().parse_args()
    texts = mixed_texts(options.data_dir)
    with contextlib.ExitStack() as stack:
        exports = dict(each.split("=", 1) for each in options.export)
        if not exports:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            exports = random_exports(options.size, options.tokenizer, folder)
        loads, processes = {}, {}
        for name, path in exports.items():
            process, port, rest_port = stack.enter_context(serving(path))
            rows = [{"instances": [text]} for text in texts]
            loads[f"{name}, gRPC"] = GrpcLoad(port, "model", texts)
            loads[f"{name}, REST"] = HttpLoad(rest_port, "/v1/models/model:predict", rows)
            processes |= {f"{name}, gRPC": process, f"{name}, REST": process}
        arguments = [f"--size={options.size}", f"--tokenizer={options.tokenizer}"]
        process, port = stack.enter_context(
            peer("benchmarks.peers.fastapi_app", "torch-float32", *arguments)
        )
        loads[_PEER] = HttpLoad(port, "/predict", [{"texts": [text]} for text in texts])
        processes[_PEER] = process

        rows = _compare(loads, processes, options)
        header = ["clients", "what", "requests/s", "/ peer", "p50, ms", "p99, ms", "errors"]
        header.append("memory, MB")
        command = shlex.join(["python", "-m", "benchmarks.serving", *sys.argv[1:]])
        report = (
            f"{describe()}. Size {options.size!r}, medians of {options.rounds} rounds of "
            f"{options.seconds:g} s. `{command}`\n\n{table(header, rows, labels=2)}"
        )
        if options.soak:
            name = next(iter(loads))
            report += "\n\n" + _soak(name, loads[name], processes[name], options.soak)
    print(report)
    if options.output:
        pathlib.Path(options.output).write_text(report + "\n", encoding="utf-8")


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving",
        description="Requests per second, latencies and memory of served models beside a peer.",
    )
    parser.add_argument("--data-dir", help="folder of TensorFlow Datasets with SST-2 and RACE")
    parser.add_argument(
        "--tokenizer", required=True, help="folder of encoder_bpe_40000.json and vocab_40000.bpe"
    )
    parser.add_argument("--size", choices=SIZES, default="paper", help="default: paper")
    parser.add_argument(
        "--export",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="base path of an export with one `text` input, instead of a random model; may be "
        "given several times",
    )
    parser.add_argument("--seconds", type=float, default=20, help="of a measurement (default: 20)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--soak", type=int, default=0, help="requests to watch the memory over")
    parser.add_argument("--output", help="a Markdown file to write")
    return parser


def mixed_texts(data_dir):
    """Sentences and passages in equal shares, mixed."""
    sentences = tfds.load("glue/sst2", split="validation", data_dir=data_dir, download=False)
    passages = tfds.load("race/middle", split="dev", data_dir=data_dir, download=False)
    texts = [example["sentence"].decode() for example in tfds.as_numpy(sentences)]
    articles = [example["article"].decode() for example in tfds.as_numpy(passages)]
    chosen = [*texts[: _NUM_TEXTS // 2], *articles[: _NUM_TEXTS // 2]]
    random.Random(0).shuffle(chosen)
    return chosen


def random_exports(size, tokenizer, folder):
    """Exports a classifier with random weights; returns base paths by name."""
    tokenizer = gpt1_keras.GPT1Tokenizer(
        f"{tokenizer}/encoder_bpe_40000.json", f"{tokenizer}/vocab_40000.bpe"
    )
    size = {**SIZES[size], "vocabulary_size": tokenizer.vocabulary_size()}
    classifier = gpt1_keras.GPT1TextClassifier(
        gpt1_keras.GPT1Backbone(**size),
        class_names=["negative", "positive"],
        preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer),
    )
    paths = {OURS: f"{folder}/batched", f"{OURS}, not batched": f"{folder}/plain"}
    for path, batching in zip(paths.values(), (Batching(), None)):
        export(classifier, path, batching=batching)
    return paths


@contextlib.contextmanager
def _process(module, *arguments, stdout=None, stderr=None):
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=stdout, stderr=stderr, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def serving(path, *flags, log=None):
    """Serves an export in a process, which logs to a file; returns the process and its ports."""
    rest_port = _free_port()
    arguments = ["--model_name=model", f"--model_base_path={path}", "--port=0"]
    arguments += [f"--rest_api_port={rest_port}", *flags]
    with _process("serving.server", *arguments, stdout=subprocess.PIPE, stderr=log) as process:
        ready = process.stdout.readline()  # "Serving ... at localhost:PORT (gRPC) and ..."
        if not ready:
            raise SystemExit(f"The server of {path} did not start.")
        yield process, int(ready.partition(" (gRPC)")[0].rpartition(":")[2]), rest_port


@contextlib.contextmanager
def peer(module, *arguments):
    """Starts a module that serves over HTTP at `--port`; returns the process and its port."""
    port = _free_port()
    with _process(module, *arguments, f"--port={port}") as process:
        while process.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
                yield process, port
                return
            time.sleep(0.2)
        raise SystemExit("The peer did not start.")


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _compare(loads, processes, options):
    """Measures all servers in turns; returns the rows of the table."""
    rows = []
    for concurrency in _CONCURRENCIES:
        for load in loads.values():  # what is new to a server is not measured
            measure(load, _NUM_TEXTS, concurrency, requests=max(2 * concurrency, 10))
        rounds = [
            {
                name: measure(load, _NUM_TEXTS, concurrency, seconds=options.seconds)
                for name, load in loads.items()
            }
            for _ in range(options.rounds)
        ]
        rates = {name: statistics.median(each[name].rate for each in rounds) for name in loads}
        for name in loads:
            latencies = 1e3 * np.concatenate([each[name].latencies for each in rounds])
            p50, p99 = np.percentile(latencies, [50, 99]) if len(latencies) else (np.nan, np.nan)
            cells = [str(concurrency), name, f"{rates[name]:.1f}"]
            cells += [f"{rates[name] / rates[_PEER]:.2f}", f"{p50:.0f}", f"{p99:.0f}"]
            cells += [str(sum(len(each[name].errors) for each in rounds))]
            rows.append([*cells, f"{_megabytes(processes[name]):.0f}"])
    return rows


def _soak(name, load, process, requests):
    """Puts many requests on a server; tells how its memory went."""
    memory, errors = [_megabytes(process)], 0
    for _ in range(10):
        errors += len(measure(load, _NUM_TEXTS, 8, requests=requests // 10).errors)
        memory.append(_megabytes(process))
    steps = ", ".join(f"{each:.0f}" for each in memory)
    return f"{name}: memory in MB over {requests:,} requests, {errors} errors: {steps}"


def _megabytes(process):
    return psutil.Process(process.pid).memory_info().rss / 2**20


if __name__ == "__main__":
    main()

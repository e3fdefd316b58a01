"""Exports that multiply in 8 bits, beside exports in float, in one run.

    python -m benchmarks.int8_serving --data-dir DIR --tokenizer DIR --exports DIR

A classifier with random weights is exported in each precision, with batching in the graph; what is
in the folder `--exports` already is served as it is. Requests of one text each, sentences of SST-2
and passages of RACE, mixed, go to all servers in turns, over gRPC, from 8 and 32 clients. `--peers`
are the same model behind FastAPI, in torch and, in int8, in others' runtimes. One text of 20 words
is answered without a server: in TensorFlow's C++ runtime, and by the peers in int8 in this process.
The machine must be idle, and its processor have AVX512-VNNI or the like.
"""

import argparse
import contextlib
import functools
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import gpt1_keras
from benchmarks.common.load import GrpcLoad, HttpLoad, measure
from benchmarks.common.setting import SIZES, describe
from benchmarks.serving import mixed_texts, peer, serving
from serving.export import export
from serving.export.batching import Batching
from serving.server.models.servable import Servable

_PRECISIONS = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"int8": True},
}
_PEERS = {
    "torch": "Hugging Face float32, FastAPI",
    "torch-bfloat16": "Hugging Face bfloat16, FastAPI",
    "onnxruntime": "ONNX Runtime int8, FastAPI",
    "openvino": "OpenVINO int8 (NNCF), FastAPI",
}
_INT8_PEERS = {"onnxruntime", "openvino"}
_INSTRUCTIONS = ("avx512_vnni", "avx_vnni", "amx_int8", "avx512_bf16")
_WORDS = 20
_PEERS_FOLDER = "peers"  # of the exports' folder
_CALIBRATION_TEXTS = 64  # from those that are not asked about


def main():
    options = _parser().parse_args()
    texts = mixed_texts(options.data_dir)
    asked, others = texts[:-_CALIBRATION_TEXTS], texts[-_CALIBRATION_TEXTS:]
    folder = pathlib.Path(options.exports)
    paths = {name: folder / name for name in options.precisions}
    if missing := [name for name, path in paths.items() if not path.exists()]:
        _export(options, missing, folder, others)
    calibration = folder / "calibration.txt"
    calibration.write_text("\n".join(" ".join(text.split()) for text in others), encoding="utf-8")
    common = [f"--size={options.size}", f"--tokenizer={options.tokenizer}"]
    if options.only_export:
        for name in _INT8_PEERS & set(options.peers):
            module, *arguments = _peer_arguments(name, options)
            subprocess.run([sys.executable, "-m", module, *arguments, *common], check=True)
        return
    servables = {name: Servable(name, 1, path / "1") for name, path in paths.items()}
    print(_setting(options), flush=True)
    for name, path in paths.items():
        _tell("file, MB", name, f"{_megabytes(path / '1'):.0f}")
    _one_text(servables, asked, options)
    del servables
    with contextlib.ExitStack() as stack:
        loads = {}
        for name, path in paths.items():
            _, port, _ = stack.enter_context(serving(path))
            loads[name] = GrpcLoad(port, "model", asked)
        for name in options.peers:
            _, port = stack.enter_context(peer(*_peer_arguments(name, options), *common))
            loads[_PEERS[name]] = HttpLoad(port, "/predict", [{"texts": [text]} for text in asked])
        _requests(loads, len(asked), options)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.int8_serving",
        description="Exports that multiply in 8 bits, beside exports in float.",
    )
    parser.add_argument("--data-dir", help="folder of TensorFlow Datasets with SST-2 and RACE")
    parser.add_argument(
        "--tokenizer", required=True, help="folder of encoder_bpe_40000.json and vocab_40000.bpe"
    )
    parser.add_argument("--exports", required=True, help="folder of the exports, made if missing")
    parser.add_argument("--size", choices=SIZES, default="paper", help="default: paper")
    parser.add_argument("--precisions", nargs="+", choices=_PRECISIONS, default=["float32", "int8"])
    parser.add_argument("--peers", nargs="+", choices=_PEERS, default=[], help="default: none")
    parser.add_argument(
        "--clients", nargs="+", type=int, default=[8, 32], help="at once (default: 8 32)"
    )
    parser.add_argument("--seconds", type=float, default=12, help="of a measurement (default: 12)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds (default: 2)")
    parser.add_argument(
        "--repetitions", type=int, default=40, help="of one text alone (default: 40)"
    )
    parser.add_argument("--only-export", action="store_true", help="measure nothing")
    return parser


def _peer_arguments(name, options):
    """A module and its arguments, all but those that all peers have."""
    if name not in _INT8_PEERS:
        return ["benchmarks.peers.fastapi_app", f"--dtype={name.partition('-')[2] or 'float32'}"]
    folder = pathlib.Path(options.exports)
    return [
        *("benchmarks.peers.int8_app", name, f"--folder={folder / _PEERS_FOLDER}"),
        f"--calibration={folder / 'calibration.txt'}",
    ]


def _export(options, names, folder, texts):
    tokenizer = gpt1_keras.GPT1Tokenizer(
        f"{options.tokenizer}/encoder_bpe_40000.json", f"{options.tokenizer}/vocab_40000.bpe"
    )
    keras.utils.set_random_seed(0)
    size = {**SIZES[options.size], "vocabulary_size": tokenizer.vocabulary_size()}
    classifier = gpt1_keras.GPT1TextClassifier(
        gpt1_keras.GPT1Backbone(**size),
        class_names=["negative", "positive"],
        preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer),
    )
    for name in names:
        arguments = dict(_PRECISIONS[name])
        if "int8" in arguments:
            arguments["calibration"] = [{"text": text} for text in texts]
        export(classifier, folder / name, batching=Batching(), **arguments)


def _one_text(servables, texts, options):
    """The latency of one text, which is answered by all in turns."""
    text = next(text for text in texts if len(text.split()) == _WORDS)
    protos = {"text": tf.make_tensor_proto([text])}
    asks = {
        name: functools.partial(servable.predict, "serving_default", protos)
        for name, servable in servables.items()
    }
    for name in sorted(_INT8_PEERS & set(options.peers)):
        from benchmarks.peers.int8_app import int8_scores

        folder = pathlib.Path(options.exports) / _PEERS_FOLDER
        scores_of = int8_scores(name, options.size, folder, options.tokenizer)
        asks[f"{name} int8, in process"] = functools.partial(scores_of, [text])
    seconds = {name: [] for name in asks}
    for _ in range(options.repetitions):
        for name, ask in asks.items():
            started = time.perf_counter()
            ask()
            seconds[name].append(time.perf_counter() - started)
    # The first are slower: what is new to the runtime is compiled.
    medians = {name: 1e3 * statistics.median(each[3:]) for name, each in seconds.items()}
    for name, median in medians.items():
        _tell(f"one text of {_WORDS} words, ms", name, f"{median:.1f}", _ratio(medians, name))


def _requests(loads, num_texts, options):
    """Requests a second of all servers, in turns."""
    for load in loads.values():  # what is new to a server is compiled before it is measured
        measure(load, num_texts, max(options.clients), seconds=options.seconds)
    for concurrency in options.clients:
        rounds = [
            {
                name: measure(load, num_texts, concurrency, seconds=options.seconds)
                for name, load in loads.items()
            }
            for _ in range(options.rounds)
        ]
        rates = {name: statistics.median(each[name].rate for each in rounds) for name in loads}
        for name, rate in rates.items():
            latencies = 1e3 * np.concatenate([each[name].latencies for each in rounds])
            errors = sum(len(each[name].errors) for each in rounds)
            _tell(
                *(f"requests/s, {concurrency} clients", name, f"{rate:.1f}", _ratio(rates, name)),
                f"p50 {np.median(latencies):.0f} ms" if len(latencies) else "no answers",
                f"{errors} errors",
            )


def _tell(*cells):
    """Prints a figure at once: what was measured, of what, the value, and its ratio to float32."""
    print(" | ".join(filter(None, cells)), flush=True)


def _setting(options):
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    found = [each for each in _INSTRUCTIONS if each in flags]
    command = shlex.join(["python", "-m", "benchmarks.int8_serving", *sys.argv[1:]])
    return f"{describe()}; {', '.join(found)}. Size {options.size!r}. `{command}`"


def _ratio(values, name):
    return f"{values[name] / values['float32']:.2f} x" if "float32" in values else ""


def _megabytes(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


if __name__ == "__main__":
    main()

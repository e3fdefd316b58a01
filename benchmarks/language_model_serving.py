"""Tokens per second of a served language model, with one client and many, in one run.

    python -m benchmarks.language_model_serving

An export under `serving.server` is asked over gRPC, by 1, 8 and 32 clients at once, with batching
inside the graph and without. Each request has one prompt, with a length, a number of new tokens
and options of its own; each answer is compared with that to the same request alone. With
`--signature score`, prompts are scored instead. The machine must be idle.
"""

import argparse
import contextlib
import pathlib
import shlex
import sys
import tempfile

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from benchmarks.common.load import measure
from benchmarks.common.setting import describe, table
from benchmarks.serving import serving
from gpt1_keras.presets import load_task
from serving.export import export
from serving.export.export_options import Batching
from serving.export_names import GENERATE, SCORE

_CONCURRENCIES = (1, 8, 32)
_NUM_REQUESTS = 32
_PROMPT_TOKENS = (4, 64)
_NEW_TOKENS = (8, 64)
_WAYS = ((0.0, 0), (0.8, 40), (1.0, 0))  # temperature and top_k
_TIMEOUT = 120.0  # seconds


def main():
    options = _parser().parse_args()
    with contextlib.ExitStack() as stack:
        exports = dict(each.split("=", 1) for each in options.export)
        if not exports:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            exports = _exports(options.preset, folder)
        requests = _requests(options)
        loads = {}
        for name, path in exports.items():
            _, port, _ = stack.enter_context(serving(path))
            loads[name] = Load(port, options.signature, requests)
        expected = next(iter(loads.values())).answers_alone()
        rows = []
        for concurrency in _CONCURRENCIES:
            for name, load in loads.items():
                rows.append(
                    [str(concurrency), name, *_measure(load, expected, concurrency, options)]
                )
    header = ["clients", "what", "tokens/s", "requests/s", "p50, ms", "p99, ms", "other answers"]
    command = shlex.join(["python", "-m", "benchmarks.language_model_serving", *sys.argv[1:]])
    report = (
        f"{describe()}. {options.preset}, `{options.signature}`, {options.seconds:g} s each. "
        f"`{command}`\n\n{table(header, rows, labels=2)}"
    )
    print(report)
    if options.output:
        pathlib.Path(options.output).write_text(report + "\n", encoding="utf-8")


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.language_model_serving",
        description="Tokens per second of a served language model, with one client and many.",
    )
    parser.add_argument(
        "--preset", default="gpt1_tiny_books", help="a language model's (default: gpt1_tiny_books)"
    )
    parser.add_argument(
        "--export",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="base path of an export of the preset, instead of new ones; may be given again",
    )
    parser.add_argument(
        "--signature", choices=[GENERATE, SCORE], default=GENERATE, help=f"default: {GENERATE}"
    )
    parser.add_argument("--seconds", type=float, default=20, help="of a measurement (default: 20)")
    parser.add_argument("--output", help="a Markdown file to write")
    return parser


def _exports(preset, folder):
    """Exports a preset with batching and without; returns base paths by name."""
    model = load_task(preset)
    paths = {"merged": f"{folder}/merged", "not merged": f"{folder}/plain"}
    for path, batching in zip(paths.values(), (Batching(), None)):
        export(model, path, batching=batching)
    return paths


def _requests(options):
    """The inputs of requests, by name, each with how many tokens it asks for."""
    tokenizer = load_task(options.preset).preprocessor.tokenizer
    special = set(tokenizer.special_token_ids)
    words = np.array([id for id in range(tokenizer.vocabulary_size()) if id not in special])
    random = np.random.default_rng(0)
    requests = []
    for number in range(_NUM_REQUESTS):
        text = tokenizer.detokenize(random.choice(words, random.integers(*_PROMPT_TOKENS)).tolist())
        inputs = {"text": np.array([text], object)}
        if options.signature == SCORE:
            requests.append((inputs, len(tokenizer(text))))
            continue
        temperature, top_k = _WAYS[number % len(_WAYS)]
        length = random.integers(*_NEW_TOKENS)
        inputs |= {
            "length": np.array([length], np.int32),
            "temperature": np.array([temperature], np.float32),
            "top_k": np.array([top_k], np.int32),
            "seed": np.array([number], np.int32),
        }
        requests.append((inputs, int(length)))
    return requests


class Load:
    """Requests over gRPC that ask for different numbers of tokens, as `measure` takes it.

    Args:
        port: of the server on this machine.
        signature: the signature's name.
        requests: list of inputs by name, each with its number of tokens.

    Attributes:
        answered: list of the requests' indices and their answers.
    """

    def __init__(self, port, signature, requests):
        self._stub = PredictionServiceStub(grpc.insecure_channel(f"127.0.0.1:{port}"))
        self.tokens = [tokens for _, tokens in requests]
        self.answered = []
        self._requests = []
        for inputs, _ in requests:
            request = PredictRequest()
            request.model_spec.name, request.model_spec.signature_name = "model", signature
            for name, value in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            self._requests.append(request)

    def client(self):
        """A function that sends one of the requests, by its index."""

        def ask(number):
            response = self._stub.Predict(self._requests[number], timeout=_TIMEOUT)
            self.answered.append((number, response))

        return ask

    def answers_alone(self):
        """The answers to all requests, one after the other."""
        ask = self.client()
        for number in range(len(self._requests)):
            ask(number)
        return [answer for _, answer in self.answered]


def _measure(load, expected, concurrency, options):
    """The cells of a row: tokens and requests a second, latencies, and how many answers differ."""
    measure(load, len(expected), concurrency, requests=concurrency)  # what is new to the server
    load.answered.clear()
    found = measure(load, len(expected), concurrency, seconds=options.seconds)
    if found.errors:
        raise SystemExit(f"A request failed: {found.errors[0]}")
    tokens = sum(load.tokens[number] for number, _ in load.answered)
    others = sum(not _same(answer, expected[number]) for number, answer in load.answered)
    p50, p99 = np.percentile(1e3 * found.latencies, [50, 99])
    return [
        *(f"{tokens / found.seconds:,.0f}", f"{found.rate:.1f}", f"{p50:,.0f}", f"{p99:,.0f}"),
        f"{others} of {len(load.answered)}",
    ]


def _same(answer, expected):
    if "continuation" in expected.outputs:
        name = "continuation"
        return answer.outputs[name].string_val == expected.outputs[name].string_val
    name = "log_probabilities"
    arrays = [tf.make_ndarray(each.outputs[name]) for each in (answer, expected)]
    return arrays[0].shape == arrays[1].shape and np.allclose(*arrays, atol=1e-5, rtol=2e-6)


if __name__ == "__main__":
    main()

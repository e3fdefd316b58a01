"""What an answer costs, against the text's length and the batch's size, beside peers and the limit.

    python -m benchmarks.costs --tokenizer DIR --exports DIR

Classifiers of random weights answer texts of whole words, from strings to scores: our exports in
TensorFlow's C++ runtime, and Hugging Face's model in torch, ONNX Runtime and OpenVINO. They answer
in turns, each in a process of its own; the machine must be idle. The limit is the time that the
least products take at the speed of the fastest product, measured in each round. What is in the
folder `--exports` already is used as it is.
"""

import argparse
import contextlib
import json
import pathlib
import random
import re
import shlex
import statistics
import sys

from benchmarks.common.limit import least_flops
from benchmarks.common.precisions import (
    PRECISIONS,
    export_missing,
    make_peers,
    measured_here,
    why_not_ours,
)
from benchmarks.common.setting import SIZES, describe, table
from benchmarks.common.turns import Worker
from benchmarks.matrix_product import FRAMEWORKS
from benchmarks.peers.classifiers import PEERS, load_tokenizer, why_not_peer
from benchmarks.peers.costs import OURS

LENGTHS = (16, 32, 64, 128, 256, 508)  # ours adds two special tokens
BATCHES = (1, 2, 4, 8, 16, 32)
BATCHES_LENGTH = 32
LIMIT = "limit, float32"
_LABELS = {**OURS, **PEERS}
_CALIBRATION_TEXTS = 64


def main():
    options = _parser().parse_args()
    names, left_out = measured_here(options.names, _why_not)
    folder = pathlib.Path(options.exports)
    length = SIZES[options.size]["max_sequence_length"]
    shapes = [(1, each) for each in LENGTHS if each < length]
    shapes += [(each, BATCHES_LENGTH) for each in BATCHES if each > 1]
    texts = Texts(options.tokenizer)
    calibration = [texts.of(BATCHES_LENGTH) for _ in range(_CALIBRATION_TEXTS)]
    precisions = [name for name in PRECISIONS if f"gpt1_keras-{name}" in names]
    arguments = (folder, options.size, options.tokenizer, calibration)
    paths = export_missing(precisions, *arguments)
    make_peers([name for name in names if name in PEERS], *arguments)
    job = {
        "exports": {f"gpt1_keras-{name}": str(path / "1") for name, path in paths.items()},
        "batches": [[texts.of(tokens) for _ in range(count)] for count, tokens in shapes],
        "rounds": 1 + options.rounds,
        "seconds": options.seconds,
        "size": options.size,
        "tokenizer": options.tokenizer,
        "folder": str(folder / "peers"),
    }
    milliseconds, gigaflops = _measure(names, job, folder / "costs.json", options)
    rows = []
    for number, (count, tokens) in enumerate(shapes):
        limit = 1e-6 * least_flops(SIZES[options.size], tokens) / gigaflops
        cells = [f"{limit:.1f}", *(f"{milliseconds[name][number] / count:.1f}" for name in names)]
        rows.append([str(count), str(tokens), *cells])
    header = ["texts", "tokens each", LIMIT, *(_LABELS[name] for name in names)]
    command = shlex.join(["python", "-m", "benchmarks.costs", *sys.argv[1:]])
    print(
        f"{describe()}. Size {options.size!r}; ms a text, medians of {options.rounds} rounds after "
        f"one. The fastest product of float32: {gigaflops:.0f} GFLOP/s. `{command}`\n\n"
        f"{table(header, rows, labels=2)}\n" + "".join(f"\n{line}" for line in left_out)
    )


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.costs",
        description="What an answer costs, against length and batch, beside peers and the limit.",
    )
    parser.add_argument(
        "--tokenizer", required=True, help="folder of encoder_bpe_40000.json and vocab_40000.bpe"
    )
    parser.add_argument("--exports", required=True, help="folder of the models, made if missing")
    parser.add_argument("--size", choices=SIZES, default="paper", help="default: paper")
    parser.add_argument(
        "--names",
        nargs="+",
        choices=[*_LABELS],
        default=[*_LABELS],
        help="default: all that this machine computes and has the packages for",
    )
    parser.add_argument("--rounds", type=int, default=3, help="after the first (default: 3)")
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="of a batch in a round (default: 0.5)"
    )
    return parser


class Texts:
    """Random texts of whole words.

    Args:
        folder: of the original vocabulary and merges.
    """

    def __init__(self, folder):
        tokenizer = load_tokenizer(folder)
        whole = (each[: -len("</w>")] for each in sorted(tokenizer.get_vocab()) if "</w>" in each)
        words = [word for word in whole if re.fullmatch("[a-z]{2,}", word)]
        ids = tokenizer(words, add_special_tokens=False)["input_ids"]
        self._words = [word for word, each in zip(words, ids) if len(each) == 1]
        self._random = random.Random(0)

    def of(self, tokens):
        """A text of so many tokens."""
        return " ".join(self._random.choices(self._words, k=tokens))


def _why_not(name):
    return why_not_peer(name) if name in PEERS else why_not_ours(name.rpartition("-")[2])


def _measure(names, job, file, options):
    """The milliseconds of each batch by name, and the fastest product's GFLOP/s."""
    file.write_text(json.dumps(job))
    product = ["--size", options.size, "--dtype", "float32", "--turns", job["rounds"]]
    with contextlib.ExitStack() as stack:
        products = [Worker("matrix_product", name, *product) for name in FRAMEWORKS]
        workers = {name: Worker("peers.costs", name, "--job", file) for name in names}
        for worker in [*products, *workers.values()]:
            stack.callback(worker.stop)
        speeds = []
        seconds = {name: [[] for _ in job["batches"]] for name in names}
        for _ in range(job["rounds"]):
            speeds.append(max(worker.turn()["gigaflops"] for worker in products))
            for number in range(len(job["batches"])):
                for name, worker in workers.items():
                    seconds[name][number].append(worker.turn()["median"])
    milliseconds = {
        name: [1e3 * statistics.median(each[1:]) for each in of_name]
        for name, of_name in seconds.items()
    }
    return milliseconds, statistics.median(speeds[1:])


if __name__ == "__main__":
    main()

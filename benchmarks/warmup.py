"""How soon after its start a server answers as fast as ever.

    python -m benchmarks.warmup --data-dir DIR --tokenizer DIR

Starts `serving.server` on an export, by default of a classifier with random weights, and sends it,
one after the other, sentences of SST-2 and passages of RACE, mixed: first ten of as many lengths,
then many more. After the warm-up requests the first clients should wait for nothing: the slowest of
the first ten answers is compared with the 99th percentile of the same ten texts sent again later.
With --without, it also starts the same export without its warm-up requests. The machine must be
idle.
"""

import argparse
import pathlib
import shlex
import shutil
import sys
import tempfile

import numpy as np

from benchmarks.common.load import GrpcLoad, measure
from benchmarks.common.setting import SIZES, describe, table
from benchmarks.serving import OURS, mixed_texts, random_exports, serving
from serving.export_names import WARMUP_FILE

_FIRST = 10


def main():
    options = _parser().parse_args()
    texts = mixed_texts(options.data_dir)[:_FIRST]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = options.export or random_exports(options.size, options.tokenizer, folder)[OURS]
        exports = {"warm-up requests": path}
        if options.without:
            exports["none"] = f"{folder}/model"
            shutil.copytree(path, exports["none"])
            for file in pathlib.Path(exports["none"]).glob(f"*/{WARMUP_FILE}"):
                file.unlink()
        for name, path in exports.items():
            first, steady = [], []
            for _ in range(options.starts):
                with serving(path) as (_, port, _):
                    load = GrpcLoad(port, "model", texts)
                    first.append(measure(load, _FIRST, 1, requests=_FIRST))
                    steady.append(measure(load, _FIRST, 1, requests=options.rounds * _FIRST))
            rows.append(_row(name, first, steady))
    command = shlex.join(["python", "-m", "benchmarks.warmup", *sys.argv[1:]])
    header = ["warm-up", "p99 of the first ten, ms", "steady p99, ms", "ratio", "errors"]
    print(f"{describe()}. Medians of {options.starts} starts. `{command}`\n\n{table(header, rows)}")


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.warmup",
        description="How soon after its start a server answers as fast as ever.",
    )
    parser.add_argument("--data-dir", help="folder of TensorFlow Datasets with SST-2 and RACE")
    parser.add_argument("--tokenizer", help="folder of encoder_bpe_40000.json and vocab_40000.bpe")
    parser.add_argument("--size", choices=SIZES, default="paper", help="default: paper")
    parser.add_argument(
        "--export", metavar="DIR", help="base path of an export of one text, instead of these two"
    )
    parser.add_argument("--without", action="store_true", help="also start it without warm-up")
    parser.add_argument("--starts", type=int, default=3, help="of the server (default: 3)")
    parser.add_argument("--rounds", type=int, default=20, help="of the ten texts (default: 20)")
    return parser


def _row(name, first, steady):
    p99 = [np.median([_p99(each) for each in measured]) for measured in (first, steady)]
    errors = sum(len(each.errors) for each in [*first, *steady])
    return [name, *(f"{1e3 * value:.0f}" for value in p99), f"{p99[0] / p99[1]:.2f}", str(errors)]


def _p99(measurement):
    return np.percentile(measurement.latencies, 99)


if __name__ == "__main__":
    main()

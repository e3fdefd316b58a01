"""Exports that compute real tokens only, beside exports by bucket, in one run.

    python -m benchmarks.packing --data-dir DIR --tokenizer DIR

Sentences of SST-2's validation split, in its order, by a classifier with random weights, in
TensorFlow's C++ runtime. By bucket, as tasks registered from outside are exported, each bucket's
sentences are padded and go through the Keras model. The exports answer in turns; the machine must
be idle.
"""

import argparse
import pathlib
import shlex
import statistics
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

import gpt1_keras
from benchmarks.common.precisions import measured_here
from benchmarks.common.setting import SIZES, describe, table
from gpt1_keras.presets.tokenizers import load_tokenizer
from gpt1_keras.tokenization.padding import bucket_lengths
from serving.export import export
from serving.export.export_options import Batching
from serving.server.models.servable import Servable

_BATCH_SIZE = 32
_DTYPES = ("float32", "bfloat16")


class BucketClassifier(gpt1_keras.GPT1TextClassifier):
    """A classifier whose export computes the Keras model, as it takes no `states_at`."""

    def predict_outputs(self, inputs):
        return super().predict_outputs(inputs)


def main():
    options = _parser().parse_args()
    sentences = tfds.load(
        "glue/sst2", split="validation", data_dir=options.data_dir, download=False
    )
    texts = [example["sentence"] for example in tfds.as_numpy(sentences)]
    texts = texts[: options.batches * _BATCH_SIZE]
    batches = [texts[i : i + _BATCH_SIZE] for i in range(0, len(texts), _BATCH_SIZE)]
    tokenizer = load_tokenizer(options.tokenizer)
    dtypes, left_out = measured_here(options.dtypes)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.exports or temporary)
        servables = _load(options, tokenizer, folder, dtypes)
        if options.only_export:
            return
        rows = _compare(servables, batches, options)
    header = ["what", "batches of", "texts/s", "/ by bucket", "ms, median", "first time, ms"]
    lengths = np.array(tokenizer(texts).row_lengths()) + 2
    buckets = np.array(bucket_lengths(SIZES[options.size]["max_sequence_length"]))
    padded = buckets[np.searchsorted(buckets, lengths)]
    command = shlex.join(["python", "-m", "benchmarks.packing", *sys.argv[1:]])
    print(
        f"{describe()}. Size {options.size!r}; {len(texts)} sentences of {lengths.mean():.1f} "
        f"tokens, {padded.mean():.1f} by bucket. `{command}`\n\n{table(header, rows, labels=2)}\n"
        + "".join(f"\n{line}" for line in left_out)
    )


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.packing",
        description="Texts per second of exports that pack tokens, beside exports by bucket.",
    )
    parser.add_argument("--data-dir", required=True, help="folder of prepared data with SST-2")
    parser.add_argument("--tokenizer", required=True, help="folder of the published vocabulary")
    parser.add_argument("--exports", help="folder to keep the exports in, or that holds them")
    parser.add_argument("--size", choices=SIZES, default="paper", help="default: paper")
    parser.add_argument(
        "--dtypes",
        nargs="+",
        choices=_DTYPES,
        default=[*_DTYPES],
        help="default: those that this machine computes",
    )
    parser.add_argument("--batches", type=int, default=8, help="of 32 sentences (default: 8)")
    parser.add_argument("--rounds", type=int, default=3, help="after the first (default: 3)")
    parser.add_argument("--single", type=int, default=20, help="sentences alone (default: 20)")
    parser.add_argument("--only-export", action="store_true", help="measure nothing")
    return parser


def _load(options, tokenizer, folder, dtypes):
    """Exports what the folder does not hold; returns exports in the C++ runtime by dtype, kind."""
    size = {**SIZES[options.size], "vocabulary_size": tokenizer.vocabulary_size()}
    tasks = {"by bucket": BucketClassifier, "packed": gpt1_keras.GPT1TextClassifier}
    servables = {}
    for dtype in dtypes:
        for kind, task_cls in tasks.items():
            path = folder / f"{options.size} {kind} {dtype}"
            if not path.exists():
                preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer)
                backbone = gpt1_keras.GPT1Backbone(**size)
                model = task_cls(backbone, 2, preprocessor=preprocessor)
                export(model, path, batching=Batching(), dtype=dtype)
            servables[dtype, kind] = Servable(kind, 1, path / "1")
    return servables


def _compare(servables, batches, options):
    rows = []
    alone = [[text] for batch in batches for text in batch][: options.single]
    for requests in batches, alone:
        seconds = {key: [] for key in servables}
        for _ in range(1 + options.rounds):
            for texts in requests:
                inputs = {"text": tf.make_tensor_proto(np.array(texts, object), tf.string)}
                for key, servable in servables.items():
                    started = time.perf_counter()
                    servable.predict("serving_default", inputs)
                    seconds[key].append(time.perf_counter() - started)
        later = {key: each[len(requests) :] for key, each in seconds.items()}
        for dtype, kind in servables:
            times = later[dtype, kind]
            first = seconds[dtype, kind][: len(requests)]
            cells = [f"{kind}, {dtype}", str(len(requests[0]))]
            cells += [f"{len(requests[0]) * len(times) / sum(times):.1f}"]
            ratios = [b / a for a, b in zip(times, later[dtype, "by bucket"])]
            cells += [f"{statistics.median(ratios):.2f}"]
            cells += [f"{1e3 * statistics.median(each):.1f}" for each in (times, first)]
            rows.append(cells)
    return rows


if __name__ == "__main__":
    main()

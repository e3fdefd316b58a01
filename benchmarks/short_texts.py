"""Tokenization in the C++ runtime, of one short text and in bulk, beside the peers'.

    python -m benchmarks.short_texts

For each normalization, ours is a SavedModel from strings to ids. It runs in TensorFlow's C++
runtime, in the runtime's threads or in the caller's (an inter-op parallelism of -1). All read texts
of 18 to 22 words in turns; figures are percentiles over texts and rounds. An empty graph shows the
time of a run that computes nothing. The peers are Hugging Face's `tokenizers` for `bert`, and the
Python pipeline for `original`, which remembers the words that it has seen. In bulk, two threads
read books in batches of 1,024 lines; the pipeline has one thread, because it is all Python.
"""

import functools
import itertools
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import gpt1_keras
from benchmarks.harness.measured_models import tokenizer_files
from benchmarks.harness.program import Program, table
from benchmarks.harness.texts import book_paragraphs, data_set_texts
from benchmarks.harness.turns import alternate, timed
from benchmarks.peers.hugging_face import fast_tokenizer
from benchmarks.peers.python_pipeline import PipelineTokenizer
from gpt1_keras.cli import exit_status
from gpt1_keras.tokenization.normalization import NORMALIZATIONS
from serving.runtime import Runtime, Session

_WORDS = range(18, 23)
_BATCH, _THREADS = 1024, 2
_PIPELINE = "the Python pipeline"
_IN_CALLER = ConfigProto(inter_op_parallelism_threads=-1).SerializeToString()


def main():
    program = Program("short_texts", __doc__, "--tokenizer", "--data-dir", "--books")
    program.add("--texts", type=int, default=500, help="of each set (default: %(default)s)")
    program.add("--rounds", type=int, default=5, help="after one (default: %(default)s)")
    options = program.parse()
    books = list(book_paragraphs(options.books))
    sentences = data_set_texts("glue/sst2", options.data_dir)
    texts = {"SST-2": _short(sentences, options.texts), "books": _short(books, options.texts)}
    pipeline = PipelineTokenizer(options.tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        encoders = _sessions(_saved_models(options.tokenizer, folder))
    encoders["tokenizers"] = fast_tokenizer(options.tokenizer).encode_batch
    encoders[_PIPELINE] = lambda texts: list(map(pipeline, texts))

    rows = []
    for name, batches in texts.items():
        for encoder, seconds in _one_by_one(encoders, batches, options.rounds).items():
            p50, p90 = 1e3 * np.percentile(seconds, [50, 90])
            rows.append([name, encoder, f"{p50:.3f}", f"{p90:.3f}"])
    latencies = table(["texts", "", "p50, ms", "p90, ms"], rows, labels=2)

    megabytes = sum(len(text.encode()) for text in books) / 1e6
    found = alternate(_in_bulk(encoders, books), options.rounds, warmup=0)
    rows = [[name, f"{megabytes / np.median(seconds):.2f}"] for name, seconds in found.items()]
    speeds = table([f"{megabytes:.1f} MB of books", "MB/s"], rows)
    program.report(f"{options.rounds} rounds.", latencies, speeds)


def _short(texts, count):
    """Returns the first texts of 18 to 22 words, each as a batch."""
    short = (text for text in texts if len(text.split()) in _WORDS)
    return [(text,) for text in itertools.islice(short, count)]


def _one_by_one(encoders, batches, rounds):
    seconds = {name: [] for name in encoders}
    for number in range(1 + rounds):
        for batch in batches:
            turns = {name: timed(encode, batch) for name, encode in encoders.items()}
            for name, found in alternate(turns, 1, warmup=0).items():
                seconds[name] += found if number else []  # the first round warms up
    return seconds


def _in_bulk(encoders, books):
    """Makes turns in which each encoder reads all books."""
    batches = [tuple(books[at : at + _BATCH]) for at in range(0, len(books), _BATCH)]

    def read(encode, threads):
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(encode, batches))

    return {  # two threads of the pipeline would only wait for each other
        name: timed(read, encode, 1 if name == _PIPELINE else _THREADS)
        for name, encode in encoders.items()
    }


def _saved_models(files_folder, folder):
    paths = {}
    for normalization in NORMALIZATIONS:
        files = tokenizer_files(files_folder)
        tokenizer = gpt1_keras.GPT1Tokenizer(*files, normalization=normalization)
        paths[normalization] = f"{folder}/{normalization}"
        _save(paths[normalization], tokenizer)
    paths["an empty graph"] = f"{folder}/empty"
    _save(paths["an empty graph"], lambda texts: tf.RaggedTensor.from_uniform_row_length(texts, 1))
    return paths


def _save(path, encode):
    """Writes a SavedModel of a function from strings `[n]` to a ragged tensor `[n, None]`."""
    module = tf.Module()
    module.encode = encode

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def tokenize(text):
        tokens = encode(text)
        return {"values": tokens.values, "row_splits": tokens.row_splits}

    tf.saved_model.save(module, path, signatures={"serving_default": tokenize})


def _sessions(paths):
    runtime = Runtime(Path(tf.__file__).parent)
    return {
        name + where: _run(runtime, path, config)
        for name, path in paths.items()
        for where, config in (("", b""), (", in the caller's thread", _IN_CALLER))
    }


def _run(runtime, path, config):
    model = SavedModel.FromString(Path(path, "saved_model.pb").read_bytes())
    signature = model.meta_graphs[0].signature_def["serving_default"]
    [feed] = (tensor.name for tensor in signature.inputs.values())
    fetches = [tensor.name for tensor in signature.outputs.values()]
    session = Session(runtime, path, config=config)
    return lambda texts: session.run({feed: _proto(texts)}, fetches)


@functools.cache
def _proto(texts):
    return tf.make_tensor_proto(texts).SerializeToString()


if __name__ == "__main__":
    sys.exit(exit_status(main))

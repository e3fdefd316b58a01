"""Tokenization in the C++ runtime, of one short text and in bulk, beside the peers'.

    python -m benchmarks.short_texts --vocabulary FILE --merges FILE --data-dir DIR

DIR holds books/ and tfds/. Ours is a SavedModel from strings to ids for each normalization, run in
TensorFlow's C++ runtime, by its threads or in the thread that asks (an inter-op parallelism of -1).
All take turns on texts of 18 to 22 words; figures are percentiles over texts and rounds. An empty
graph shows what a run costs that computes nothing. The peers are Hugging Face's `tokenizers` for
`bert`, and the Python pipeline for `original`, which remembers the words that it has seen. In bulk,
two threads read books in batches of 1,024 lines, or one for the pipeline, since it is all Python.
With --save, the SavedModels are kept; another version of this code measures them, too, by --beside.
"""

import argparse
import functools
import itertools
import os
import shlex
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import gpt1_keras
from benchmarks.common.setting import describe, table
from benchmarks.original_agreement import Reference, book_paragraphs, data_set_texts
from gpt1_keras.tokenization.normalization import NORMALIZATIONS
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN
from serving.runtime.c_api import Runtime
from serving.runtime.session import Session

_WORDS = range(18, 23)
_BATCH, _THREADS = 1024, 2
_PIPELINE = "the Python pipeline"
_IN_CALLER = ConfigProto(inter_op_parallelism_threads=-1).SerializeToString()


def main():
    options = _parser().parse_args()
    command = shlex.join(["python", "-m", "benchmarks.short_texts", *sys.argv[1:]])
    print(f"{describe()}. `{command}`")
    books = list(book_paragraphs(os.path.join(options.data_dir, "books", "valid")))
    sentences = data_set_texts("glue/sst2", os.path.join(options.data_dir, "tfds"))
    tokenizers = _hugging_face(options.vocabulary, options.merges)
    with tempfile.TemporaryDirectory() as folder:
        encoders = _sessions(_saved_models(options, options.save or folder))
    encoders["tokenizers"] = tokenizers.encode_batch
    pipeline = Reference(options.vocabulary, options.merges)
    encoders[_PIPELINE] = lambda texts: list(map(pipeline, texts))

    rows = []
    for name, texts in (("SST-2", sentences), ("books", books)):
        short = (text for text in texts if len(text.split()) in _WORDS)
        batches = [(text,) for text in itertools.islice(short, options.texts)]
        times = {encoder: [] for encoder in encoders}
        for batch in batches * (1 + options.rounds):
            for encoder, encode in encoders.items():
                times[encoder].append(_time(encode, batch))
        for encoder, seconds in times.items():  # the first round warms up
            p50, p90 = 1e3 * np.percentile(seconds[len(batches) :], [50, 90])
            rows.append([name, encoder, f"{p50:.3f}", f"{p90:.3f}"])
    print(f"\n{table(['texts', '', 'p50, ms', 'p90, ms'], rows, labels=2)}")

    batches = [tuple(books[at : at + _BATCH]) for at in range(0, len(books), _BATCH)]
    size = sum(len(text.encode()) for text in books) / 1e6
    speeds = {encoder: [] for encoder in encoders}
    for _ in range(options.rounds):
        for encoder, encode in encoders.items():
            threads = 1 if encoder == _PIPELINE else _THREADS  # it would only wait for itself
            speeds[encoder].append(size / _time(_in_threads, threads, encode, batches))
    rows = [[encoder, f"{np.median(each):.2f}"] for encoder, each in speeds.items()]
    print(f"\n{table([f'{size:.1f} MB of books', 'MB/s'], rows)}")


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.short_texts",
        description="Tokenization in the C++ runtime, of one short text and in bulk.",
    )
    parser.add_argument("--vocabulary", required=True, help="encoder_bpe_40000.json")
    parser.add_argument("--merges", required=True, help="vocab_40000.bpe")
    parser.add_argument("--data-dir", required=True, help="folder with books/ and tfds/")
    parser.add_argument("--texts", type=int, default=500, help="of each set (default: 500)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    parser.add_argument("--save", metavar="DIR", help="folder to keep the SavedModels in")
    parser.add_argument("--beside", metavar="DIR", help="folder that another --save wrote")
    return parser


def _saved_models(options, folder):
    """Writes the SavedModels: their paths by name."""
    paths = {}
    for normalization in NORMALIZATIONS:
        tokenizer = gpt1_keras.GPT1Tokenizer(
            options.vocabulary, options.merges, normalization=normalization
        )
        paths[normalization] = f"{folder}/{normalization}"
        _save(paths[normalization], tokenizer)
        if options.beside:
            paths[f"{normalization}, beside"] = f"{options.beside}/{normalization}"
    paths["an empty graph"] = f"{folder}/empty"
    _save(paths["an empty graph"], lambda texts: tf.RaggedTensor.from_uniform_row_length(texts, 1))
    return paths


def _save(path, encode):
    """Writes a SavedModel of a function from strings `[n]` to what is `[n, None]`."""
    module = tf.Module()
    module.encode = encode

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def tokenize(text):
        tokens = encode(text)
        return {"values": tokens.values, "row_splits": tokens.row_splits}

    tf.saved_model.save(module, path, signatures={"serving_default": tokenize})


def _sessions(paths):
    """Functions that run the SavedModels on batches, by name."""
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
    """A batch of texts, as a serialized TensorProto."""
    return tf.make_tensor_proto(texts).SerializeToString()


def _hugging_face(vocabulary, merges):
    """Hugging Face's tokenizer for GPT-1."""
    tokenizer = Tokenizer(
        models.BPE.from_file(vocabulary, merges, unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _in_threads(threads, encode, batches):
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(encode, batches))


def _time(function, *arguments):
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

"""Tokenization called from Python, beside the peer of each normalization.

    python -m benchmarks.tokenizer

The peer of `bert` is Hugging Face's `tokenizers`. The peer of `original` is the Python pipeline:
ftfy, text_standardize, spaCy 2.0's rules and byte-pair encoding; it remembers the words that it has
seen. Ours and the peer read the same batches of paragraphs of books, in turns; figures are medians
over the rounds. `benchmarks.short_texts` measures the C++ runtime.
"""

import itertools
import os
import statistics
import sys

from benchmarks.harness.alternate import alternate, timed
from benchmarks.harness.program import Program, table
from benchmarks.harness.texts import book_paragraphs
from gpt1_keras.cli import exit_status

_BATCH_SIZES = (1, 32, 256, 4096)
_MOST_LINES = 2048  # in batches smaller than these


def main():
    program = Program("tokenizer", __doc__, "--tokenizer", "--books")
    program.add("--lines", type=int, default=4096, help="to read (default: %(default)s)")
    program.add("--rounds", type=int, default=5, help="after one (default: %(default)s)")
    program.add("--one-core", action="store_true", help="use one core, as the pipeline does")
    options = program.parse()
    if options.one_core:  # before TensorFlow is imported, which makes a thread for each core
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    lines = list(itertools.islice(book_paragraphs(options.books), options.lines))
    rows = [
        [normalization, str(size), *cells]
        for normalization, encoders in _encoders(options.tokenizer).items()
        for size in _BATCH_SIZES
        if (cells := _measure(encoders, _batches(lines, size), options.rounds))
    ]
    header = ["normalization", "lines a batch", "ours, MB/s", "peer, MB/s", "ours, ms a batch"]
    facts = f"{len(lines)} lines, {sum(map(_size, lines)) / 1e6:.2f} MB; medians of rounds."
    program.report(facts, table([*header, "peer, ms"], rows, labels=2))


def _encoders(folder):
    """Returns functions that encode a list of texts, by normalization: ours, and the peer's."""
    import tensorflow as tf

    import gpt1_keras
    from benchmarks.harness.measured_models import tokenizer_files
    from benchmarks.peers.hugging_face import fast_tokenizer
    from benchmarks.peers.python_pipeline import PipelineTokenizer

    def ours(normalization):
        files = tokenizer_files(folder)
        tokenizer = gpt1_keras.GPT1Tokenizer(*files, normalization=normalization)
        return lambda texts: tokenizer(tf.constant(texts))

    pipeline = PipelineTokenizer(folder)
    return {
        "bert": {"ours": ours("bert"), "peer": fast_tokenizer(folder).encode_batch},
        "original": {
            "ours": ours("original"),
            "peer": lambda texts: [pipeline(text) for text in texts],
        },
    }


def _batches(lines, size):
    batches = [lines[start : start + size] for start in range(0, len(lines), size)]
    return batches[: max(1, _MOST_LINES // size)]


def _measure(encoders, batches, rounds):
    """Returns the cells of a row."""

    def encode_all(encode):
        for batch in batches:
            encode(batch)

    turns = {name: timed(encode_all, encode) for name, encode in encoders.items()}
    medians = [statistics.median(seconds) for seconds in alternate(turns, rounds).values()]
    megabytes = sum(_size(line) for batch in batches for line in batch) / 1e6
    speeds = [megabytes / median for median in medians]
    latencies = [1e3 * median / len(batches) for median in medians]
    return [f"{figure:.2f}" for figure in [*speeds, *latencies]]


def _size(text):
    return len(text.encode())


if __name__ == "__main__":
    sys.exit(exit_status(main))

"""Tokenization speed beside Hugging Face's `tokenizers`, in one run.

    python -m benchmarks.tokenizer --vocabulary FILE --merges FILE --text FILE

Both see the same batches of lines, in turns, called from Python; figures are medians over the
rounds. `benchmarks.short_texts` is the one for the C++ runtime, and for megabytes of text.
"""

import argparse
import shlex
import statistics
import sys
import time

import tensorflow as tf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import gpt1_keras
from benchmarks.common.setting import describe, table
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN

_BATCH_SIZES = (1, 32, 256, 4096)


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tokenizer",
        description="Tokenization speed beside Hugging Face's tokenizers.",
    )
    parser.add_argument("--vocabulary", required=True, help="encoder_bpe_40000.json")
    parser.add_argument("--merges", required=True, help="vocab_40000.bpe")
    parser.add_argument("--text", required=True, help="a UTF-8 file, a text a line")
    parser.add_argument("--lines", type=int, default=4096, help="lines to read (default: 4096)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    options = parser.parse_args()

    with open(options.text, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file if line.strip()][: options.lines]
    ours = gpt1_keras.GPT1Tokenizer(options.vocabulary, options.merges)
    theirs = Tokenizer(
        models.BPE.from_file(
            options.vocabulary, options.merges, unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD
        )
    )
    theirs.normalizer = normalizers.BertNormalizer(lowercase=True)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    rows = []
    for size in _BATCH_SIZES:
        batches = [lines[start : start + size] for start in range(0, len(lines), size)]
        batches = batches[: max(1, 2048 // size)]
        tensors = [tf.constant(batch) for batch in batches]
        megabytes = sum(_size(line) for batch in batches for line in batch) / 1e6
        seconds = [
            (_time(ours, tensors), _time(theirs.encode_batch, batches))
            for _ in range(options.rounds + 1)
        ][1:]  # the first round warms up
        medians = [statistics.median(column) for column in zip(*seconds)]
        speeds = [megabytes / median for median in medians]
        latencies = [1e3 * median / len(batches) for median in medians]
        rows.append([str(size), *(f"{figure:.2f}" for figure in [*speeds, *latencies])])

    megabytes = sum(map(_size, lines)) / 1e6
    header = ["lines a batch", "ours, MB/s", "theirs, MB/s", "ours, ms a batch", "theirs, ms"]
    command = shlex.join(["python", "-m", "benchmarks.tokenizer", *sys.argv[1:]])
    print(
        f"{describe()}. {len(lines)} lines, {megabytes:.2f} MB, medians of {options.rounds} rounds."
        f" `{command}`\n\n{table(header, rows)}"
    )


def _size(text):
    return len(text.encode())


def _time(function, batches):
    started = time.perf_counter()
    for batch in batches:
        function(batch)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

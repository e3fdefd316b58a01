"""A fine-tuned classifier as files for devices: latency, size and accuracy beside peers.

    python -m benchmarks.on_device --model runs/sst2/best --task sst2 --data-dir DIR
    python -m benchmarks.on_device --size paper --tokenizer DIR --words 20 --task sst2

The same weights answer the same validation texts, one at a time on one thread, tokenization
included: our .tflite files in each quantization, TensorFlow with our SavedModel, and Hugging Face's
torch model, ONNX Runtime and ExecuTorch (XNNPACK) with dynamic int8; the last three tokenize
outside, with Hugging Face's `tokenizers`. They work in turns, so a busy machine slows all alike;
the machine should be idle all the same. With `--size`, weights are random: only sizes, times and
agreement then mean something.
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile

import keras
import numpy as np

import gpt1_keras
from benchmarks.common.setting import SIZES, describe, table
from benchmarks.common.turns import Worker
from benchmarks.peers.on_device import (
    HEAD_FILE,
    JOB_FILE,
    ONE_THREAD,
    PEERS,
    QUANTIZATION_OF,
    SAVED_MODEL,
)
from gpt1_keras.tokenization.input_transformations import segment_limit
from serving.export import export
from serving.tflite import convert
from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import CLASSIFICATION, DATASETS, find_dataset
from training.evaluation.dataset_metrics import METRICS


def prepare(model, examples, folder, names):
    """Writes all that the peers of these names need into a folder."""
    folder.mkdir(exist_ok=True)
    preprocessor, tokenizer = model.preprocessor, model.preprocessor.tokenizer
    texts = [
        [text.decode("utf-8", "replace") for text in row]
        for row in zip(*(examples.texts[field] for field in preprocessor.fields))
    ]
    # A byte more than the longest has, so that none looks as if it were cut.
    max_bytes = 1 + max(len(text.encode()) for row in texts for text in row)
    if SAVED_MODEL in names:
        export(model, folder / "saved_model")
    for name, quantization in QUANTIZATION_OF.items():
        if name in names:
            path = folder / f"{quantization}.tflite"
            convert(model, path, max_bytes, preprocessor.sequence_length, quantization=quantization)
    gpt1_keras.convert.save_hugging_face(model, folder / "hugging_face")
    head = {name: getattr(model.head, name) for name in ("kernel", "bias")}
    arrays = {name: keras.ops.convert_to_numpy(array) for name, array in head.items()}
    np.savez(folder / HEAD_FILE, **arrays)
    job = {
        "fields": preprocessor.fields,
        "texts": texts,
        "max_bytes": max_bytes,
        "sequence_length": preprocessor.sequence_length,
        "limit": segment_limit(len(preprocessor.fields), preprocessor.sequence_length),
        "special_tokens": [
            tokenizer.start_token,
            tokenizer.delimiter_token,
            tokenizer.extract_token,
        ],
    }
    (folder / JOB_FILE).write_text(json.dumps(job))


def load_model(options, fields, class_names):
    """The classifier to measure."""
    if options.model:
        return gpt1_keras.GPT1TextClassifier.from_preset(options.model)
    tokenizer = gpt1_keras.GPT1Tokenizer(
        f"{options.tokenizer}/encoder_bpe_40000.json", f"{options.tokenizer}/vocab_40000.bpe"
    )
    keras.utils.set_random_seed(0)
    size = {**SIZES[options.size], "vocabulary_size": tokenizer.vocabulary_size()}
    return gpt1_keras.GPT1TextClassifier(
        gpt1_keras.GPT1Backbone(**size),
        class_names=class_names,
        preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer, fields=fields),
    )


def of_words(examples, count):
    """The examples of so many words, of all fields together."""
    counts = sum(np.array([len(text.split()) for text in t]) for t in examples.texts.values())
    return examples.take(np.flatnonzero(counts == count))


def enough_for(preprocessor, examples):
    """The sequence length that cuts no text, or the preprocessor's where that is less."""
    longest = max(
        int(np.max(preprocessor.tokenizer(column).row_lengths()))
        for column in examples.texts.values()
    )
    fields = len(preprocessor.fields)
    return min(preprocessor.sequence_length, fields * (longest + 2))


def measure(folder, names, block):
    """Lets the peers take turns; returns each one's milliseconds per text, bytes and classes."""
    os.environ.update(ONE_THREAD)  # theirs, as this process has made its threads
    workers = {
        name: Worker("peers.on_device", name, "--folder", folder, "--block", block)
        for name in names
    }
    count = len(json.loads((folder / JOB_FILE).read_text())["texts"])
    milliseconds = {name: [] for name in names}
    try:
        for _ in range(0, count, block):
            for name, worker in workers.items():
                facts = worker.turn()
                milliseconds[name].append(1e3 * facts["seconds"] / facts["texts"])
        summaries = {name: worker.summary() for name, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.stop()
    # The first block warms up.
    return {
        name: (statistics.median(milliseconds[name][1:] or milliseconds[name]), *summary.values())
        for name, summary in summaries.items()
    }


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.on_device",
        description="A classifier on a device: latency, size and accuracy beside peers.",
    )
    weights = parser.add_mutually_exclusive_group(required=True)
    weights.add_argument("--model", help="preset of a fine-tuned classifier")
    weights.add_argument("--size", choices=SIZES, help="random weights, with --tokenizer")
    parser.add_argument("--tokenizer", help="folder of encoder_bpe_40000.json and vocab_40000.bpe")
    tasks = [name for name, task in DATASETS.items() if task.kind == CLASSIFICATION]
    parser.add_argument("--task", required=True, choices=tasks)
    parser.add_argument("--data-dir", help="folder of prepared TensorFlow Datasets")
    parser.add_argument("--words", type=int, help="of each text (default: any number)")
    parser.add_argument("--limit-examples", type=int, help="how many to sample (default: all)")
    parser.add_argument(
        "--sequence-length",
        type=int,
        help="tokens of a text at most (default: as many as are needed)",
    )
    parser.add_argument(
        "--folder", help="of the files to measure; the same command with it prepares none anew"
    )
    parser.add_argument("--only", help="names or parts of names of what to run, by commas")
    parser.add_argument("--block", type=int, default=50, help="texts in a turn (default: 50)")
    options = parser.parse_args()

    task = find_dataset(options.task)
    examples = load_examples(task, "validation", DataOptions(options.data_dir))
    if options.words:
        examples = of_words(examples, options.words)
    if options.limit_examples:
        examples = examples.sample(options.limit_examples, seed=0)
    wanted = (options.only or "").split(",")
    names = [name for name in PEERS if any(part in name for part in wanted)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.folder or temporary)
        if not (folder / JOB_FILE).exists():
            model = load_model(options, tuple(task.fields), examples.class_names)
            model.preprocessor.sequence_length = options.sequence_length or enough_for(
                model.preprocessor, examples
            )
            prepare(model, examples, folder, names)
        results = measure(folder, names, options.block)

    metric, expected = task.metrics[0], next(iter(results.values()))[2]
    rows = [
        [
            name,
            f"{size / 1e6:.1f}",
            f"{latency:.2f}",
            f"{100 * METRICS[metric](examples.labels, classes):.1f}",
            f"{100 * np.mean(np.array(classes) == expected):.1f}",
        ]
        for name, (latency, size, classes) in results.items()
    ]
    header = ["what", "MB", "ms a text", f"{metric}, %", f"as {names[0]}, %"]
    print(f"{options.task}: {len(examples)} texts, one at a time on one thread. {describe()}\n")
    print(table(header, rows))


if __name__ == "__main__":
    main()

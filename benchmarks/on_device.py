"""A classifier as files for devices: latency, size and accuracy beside peers.

    python -m benchmarks.on_device --model runs/sst2/best --task sst2
    python -m benchmarks.on_device --size tiny --words 20

The same weights answer the same validation texts, one at a time on one thread, tokenization
included. Measured are our .tflite files in each quantization, TensorFlow with our SavedModel, and
Hugging Face's torch model, ONNX Runtime and ExecuTorch (XNNPACK) with dynamic int8; the last three
tokenize outside the model, with Hugging Face's `tokenizers`. They take turns, so a busy machine
slows all of them equally; still, the machine should be idle. Without `--model`, weights are random:
then only sizes, times and agreement mean something.
"""

import contextlib
import json
import pathlib
import statistics
import sys
import tempfile

import numpy as np

from benchmarks.harness.alternate import REST, alternate
from benchmarks.harness.finetuning_batches import HUGGING_FACE
from benchmarks.harness.measured_models import random_classifier
from benchmarks.harness.program import Program, table
from benchmarks.harness.worker import Worker
from benchmarks.peers import Peer, add_peers, measured_here, run
from benchmarks.peers.hugging_face import HEAD_FILE
from benchmarks.peers.ours import SAVED_MODEL
from gpt1_keras.cli import exit_status

JOB_FILE = "job.json"
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"
)
_QUANTIZATIONS = {  # of our files for LiteRT
    "litert-float32": "none",
    "litert-float16": "float16",
    "litert-int8": "int8",
    "litert-int4": "int4",
}
_TORCH = ("torch", "transformers")
_ONNX = (*_TORCH, "onnx", "onnxruntime", "onnxscript")
# All run on any processor, so their precision is float32: their int8 needs no special instructions.
PEERS = {
    SAVED_MODEL: Peer("TensorFlow, SavedModel, float32", "ours", "float32"),
    "hugging_face": Peer("Hugging Face torch, dynamic int8", "hugging_face", "float32", _TORCH),
    "onnxruntime": Peer("ONNX Runtime, dynamic int8", "onnxruntime", "float32", _ONNX),
    "executorch": Peer(
        "ExecuTorch, XNNPACK, dynamic int8", "executorch", "float32", (*_TORCH, "executorch")
    ),
    **{
        name: Peer(name.replace("litert-", "LiteRT "), "ours", "float32") for name in _QUANTIZATIONS
    },
}


def main():
    from training.datasets.data_options import DataOptions
    from training.datasets.labelled_examples import load_examples
    from training.datasets.paper_datasets import CLASSIFICATION, DATASETS, find_dataset
    from training.evaluation.predictions import METRICS

    program = Program("on_device", __doc__, "--data-dir", "--tokenizer", "--size")
    add_peers(program, PEERS)
    program.add("--model", help="preset of a fine-tuned classifier (default: random weights)")
    tasks = [name for name, task in DATASETS.items() if task.kind == CLASSIFICATION]
    program.add("--task", choices=tasks, default="sst2", help="default: %(default)s")
    program.add("--words", type=int, help="of each text (default: any number)")
    program.add("--limit-examples", type=int, help="how many to sample (default: all)")
    program.add("--block", type=int, default=50, help="texts in a turn (default: %(default)s)")
    options = program.parse()
    names, left_out = measured_here(options.only, PEERS)
    task = find_dataset(options.task)
    examples = load_examples(task, "validation", DataOptions(options.data_dir))
    if options.words:
        examples = _of_words(examples, options.words)
    if options.limit_examples:
        examples = examples.sample(options.limit_examples, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        _prepare(_load_model(options, task, examples), examples, folder, names)
        results = _measure(folder, names, len(examples), options.block)

    metric, (_, summary) = task.metrics[0], next(iter(results.values()))
    expected = summary["classes"]
    rows = []
    for name, (milliseconds, summary) in results.items():
        score = METRICS[metric](examples.labels, summary["classes"])
        agreement = np.mean(np.array(summary["classes"]) == expected)
        cells = [f"{summary['size'] / 1e6:.1f}", f"{milliseconds:.2f}"]
        rows.append([PEERS[name].label, *cells, f"{100 * score:.1f}", f"{100 * agreement:.1f}"])
    header = ["what", "MB", "ms a text", f"{metric}, %", f"as {PEERS[names[0]].label}, %"]
    facts = f"{options.task}: {len(examples)} texts, one at a time on one thread."
    program.report(facts, table(header, rows), left_out)


def answer(turns, name, folder, block):
    """Answers a block of texts in each turn; returns the file's size and the classes."""
    folder, peer = pathlib.Path(folder), PEERS[name]
    job = json.loads((folder / JOB_FILE).read_text())
    score, size = run(peer.module, "device_classifier", _QUANTIZATIONS.get(name, name), folder, job)
    classes = []
    for first in range(0, len(job["texts"]), block):
        turns.begin()
        texts = job["texts"][first : first + block]
        classes += [int(np.argmax(score(each))) for each in texts]
        turns.end(texts=len(texts))
    return {"size": size, "classes": classes}


def _measure(folder, names, count, block):
    """Returns each peer's milliseconds per text and its summary, by name."""
    with contextlib.ExitStack() as stack:
        workers = {}
        for name in names:
            arguments = {"name": name, "folder": str(folder), "block": block}
            worker = Worker("on_device:answer", environment=_ONE_THREAD, **arguments)
            workers[name] = stack.enter_context(worker)
        turns = {name: worker.turn for name, worker in workers.items()}
        blocks = -(-count // block)
        warmup = int(blocks > 1)
        found = alternate(turns, blocks - warmup, warmup, rest=REST)
        return {
            name: (
                1e3 * statistics.median(each["seconds"] / each["texts"] for each in found[name]),
                worker.summary(),
            )
            for name, worker in workers.items()
        }


def _load_model(options, task, examples):
    """Returns the classifier to measure; if possible, its sequence length cuts no text."""
    import gpt1_keras

    fields = tuple(task.fields)
    if options.model:
        model = gpt1_keras.GPT1TextClassifier.from_preset(options.model)
    else:
        model = random_classifier(
            options.size, options.tokenizer, examples.class_names, fields=fields
        )
    preprocessor = model.preprocessor
    longest = max(
        int(np.max(preprocessor.tokenizer(column).row_lengths()))
        for column in examples.texts.values()
    )
    enough = len(preprocessor.fields) * (longest + 2)
    preprocessor.sequence_length = min(preprocessor.sequence_length, enough)
    return model


def _of_words(examples, count):
    """Returns the examples with `count` words in all fields together."""
    counts = sum(np.array([len(text.split()) for text in t]) for t in examples.texts.values())
    return examples.take(np.flatnonzero(counts == count))


def _prepare(model, examples, folder, names):
    """Writes what the named peers need into a folder."""
    import keras

    import gpt1_keras
    from serving.export import export
    from serving.tflite import convert

    preprocessor, tokenizer = model.preprocessor, model.preprocessor.tokenizer
    texts = [
        [text.decode("utf-8", "replace") for text in row]
        for row in zip(*(examples.texts[field] for field in preprocessor.fields))
    ]
    # One byte more than the longest text, so that no text counts as cut.
    max_bytes = 1 + max(len(text.encode()) for row in texts for text in row)
    length = preprocessor.sequence_length
    if SAVED_MODEL in names:
        export(model, folder / SAVED_MODEL)
    for name, quantization in _QUANTIZATIONS.items():
        if name in names:
            path = folder / f"{quantization}.tflite"
            convert(model, path, max_bytes, length, quantize=quantization)
    gpt1_keras.convert.save_hugging_face(model, folder / HUGGING_FACE)
    head = {name: getattr(model.head, name) for name in ("kernel", "bias")}
    arrays = {name: keras.ops.convert_to_numpy(array) for name, array in head.items()}
    np.savez(folder / HEAD_FILE, **arrays)
    special_tokens = ("start_token", "delimiter_token", "extract_token")
    job = {
        "fields": preprocessor.fields,
        "texts": texts,
        "max_bytes": max_bytes,
        "sequence_length": length,
        "truncate": preprocessor.truncate,
        "special_tokens": [getattr(tokenizer, name) for name in special_tokens],
    }
    (folder / JOB_FILE).write_text(json.dumps(job))


if __name__ == "__main__":
    sys.exit(exit_status(main))

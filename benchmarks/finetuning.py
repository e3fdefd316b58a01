"""Fine-tuning on SST-2 beside Hugging Face's Trainer, in one run.

    python -m benchmarks.finetuning --data-dir DIR --preset gpt1_tiny_books

The same weights, sentences and batch size, in processes of their own that train some batches each
in turns, with L3 and with L2 alone. Each has its own way to batch: `training.finetune` sorts
sentences of similar length into batches and tokenizes in the loop; the Trainer takes them at
random, tokenized beforehand, and pads each batch to its longest (`DataCollatorWithPadding`). The
machine must be idle, as for `benchmarks.training_step`.
"""

import argparse
import contextlib
import pathlib
import shlex
import statistics
import sys
import tempfile

import numpy as np

from benchmarks.common.setting import describe, table, train_by_onednn
from benchmarks.common.turns import Worker
from benchmarks.peers.finetuning import BATCH_SIZE

OBJECTIVES = {"L3": 0.5, "L2": 0.0}  # lambda of each
WAYS = {"ours": "gpt1_keras", "trainer": "Hugging Face's Trainer"}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.finetuning",
        description="Fine-tuning on SST-2 beside Hugging Face's Trainer.",
    )
    add = parser.add_argument
    add("--data-dir", required=True, help="folder of prepared TensorFlow Datasets, with glue/sst2")
    add("--preset", default="gpt1_tiny_books", help="default: %(default)s")
    add("--batches", type=int, default=40, help="in a turn (default: %(default)s)")
    add("--turns", type=int, default=4, help="after one to warm up (default: %(default)s)")
    add("--objectives", nargs="+", choices=OBJECTIVES, default=[*OBJECTIVES])
    options = parser.parse_args()
    train_by_onednn()

    print(f"{describe()}. `{shlex.join(['python', '-m', 'benchmarks.finetuning', *sys.argv[1:]])}`")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        epoch = _prepare(options.preset, options.data_dir, pathlib.Path(folder))
        for objective in options.objectives:
            seconds, padding = _measure(objective, folder, options)
            ratio = statistics.median(b / a for a, b in zip(seconds["ours"], seconds["trainer"]))
            for way, label in WAYS.items():
                batch = statistics.median(seconds[way]) / options.batches
                cells = [objective, label, f"{1e3 * batch:.0f}", f"{epoch * batch / 60:.1f}"]
                rows.append(
                    [*cells, f"{padding[way]:.0%}", f"{ratio:.2f}" if way == "ours" else ""]
                )
    header = ["objective", "what", "ms a batch", "minutes an epoch", "padding", "speed"]
    print(f"\n{table(header, rows, labels=2)}")


def _prepare(preset: str, data_dir: str, folder: pathlib.Path) -> int:
    """Writes the classifier for both, and the data as ids; returns the batches of an epoch."""
    import gpt1_keras
    from training.datasets.data_options import DataOptions
    from training.datasets.labelled_examples import load_examples
    from training.datasets.paper_datasets import DATASETS

    examples = load_examples(DATASETS["sst2"], "train", DataOptions(data_dir))
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(preset, class_names=examples.class_names)
    classifier.save_to_preset(folder / "preset")
    gpt1_keras.convert.save_hugging_face(classifier, folder / "hugging_face")
    preprocessor = classifier.preprocessor
    ids, _ = preprocessor.transform([examples.tensors()[name] for name in DATASETS["sst2"].fields])
    np.savez(
        folder / "ids.npz",
        ids=ids.flat_values,
        lengths=ids.row_lengths(),
        labels=examples.labels,
        pad_token_id=preprocessor.tokenizer.pad_token_id,
    )
    return -(-len(examples) // BATCH_SIZE)


def _measure(
    objective: str, folder: str, options: argparse.Namespace
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of each turn, and the share of padding in the tokens, by way."""
    arguments = [
        *("--folder", folder, "--data-dir", options.data_dir, "--turns", 1 + options.turns),
        *("--batches", options.batches, "--coefficient", OBJECTIVES[objective]),
    ]
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    with contextlib.ExitStack() as stack:
        workers = {}
        for way in WAYS:
            workers[way] = Worker("peers.finetuning", way, *arguments)
            stack.callback(workers[way].stop)
        for _ in range(1 + options.turns):
            for way, worker in workers.items():
                seconds[way].append(worker.turn()["seconds"])
        padding = {way: worker.summary()["padding"] for way, worker in workers.items()}
    return {way: taken[1:] for way, taken in seconds.items()}, padding


if __name__ == "__main__":
    main()

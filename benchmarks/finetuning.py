"""Fine-tuning on SST-2 beside Hugging Face's Trainer.

    python -m benchmarks.finetuning --preset gpt1_tiny_books

Both have the same weights, sentences and batch size. They run in two processes that take turns of
some batches, with L3 and with L2 alone. Each batches in its own way: `training.finetune` puts
sentences of similar length into a batch and tokenizes in the loop; the Trainer takes sentences at
random, tokenized beforehand, and pads each batch to its longest (`DataCollatorWithPadding`). The
machine must be idle, as for `benchmarks.training_step`.
"""

import contextlib
import os
import pathlib
import statistics
import sys
import tempfile

import numpy as np

from benchmarks.harness.program import Program, table
from benchmarks.harness.training_turns import FINETUNING_BATCH, HUGGING_FACE, IDS_FILE, PRESET
from benchmarks.harness.turns import REST, Worker, alternate, speedup
from gpt1_keras.cli import exit_status

OBJECTIVES = {"L3": 0.5, "L2": 0.0}  # lambda of each
PEERS = {"ours": "gpt1_keras", "hugging_face": "Hugging Face's Trainer"}


def main():
    program = Program("finetuning", __doc__, "--data-dir")
    program.add("--preset", default="gpt1_tiny_books", help="default: %(default)s")
    program.add("--batches", type=int, default=40, help="in a turn (default: %(default)s)")
    program.add("--turns", type=int, default=4, help="after one to warm up (default: %(default)s)")
    program.add("--objectives", nargs="+", choices=OBJECTIVES, default=[*OBJECTIVES])
    options = program.parse()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as `training`'s programs do
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        epoch = _prepare(options.preset, options.data_dir, pathlib.Path(folder))
        for objective in options.objectives:
            seconds, padding = _measure(objective, folder, options)
            speeds = [f"{speedup(*seconds.values()):.2f}", ""]
            for (peer, label), speed in zip(PEERS.items(), speeds):
                batch = statistics.median(seconds[peer]) / options.batches
                cells = [f"{1e3 * batch:.0f}", f"{epoch * batch / 60:.1f}", f"{padding[peer]:.0%}"]
                rows.append([objective, label, *cells, speed])
    header = ["objective", "what", "ms a batch", "minutes an epoch", "padding", "speed"]
    program.report(f"{options.preset}.", table(header, rows, labels=2))


def _prepare(preset, data_dir, folder):
    """Writes the classifier for both, and the data as ids; returns an epoch's number of batches."""
    import gpt1_keras
    from training.datasets.data_options import DataOptions
    from training.datasets.labelled_examples import load_examples
    from training.datasets.paper_datasets import DATASETS

    examples = load_examples(DATASETS["sst2"], "train", DataOptions(data_dir))
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(preset, class_names=examples.class_names)
    classifier.save_to_preset(folder / PRESET)
    gpt1_keras.convert.save_hugging_face(classifier, folder / HUGGING_FACE)
    preprocessor = classifier.preprocessor
    texts, _ = preprocessor.read(examples.texts)
    ids, _ = preprocessor.transform(list(texts.values()))
    np.savez(
        folder / IDS_FILE,
        ids=ids.flat_values,
        lengths=ids.row_lengths(),
        labels=examples.labels,
        pad_token_id=preprocessor.tokenizer.pad_token_id,
    )
    return -(-len(examples) // FINETUNING_BATCH)


def _measure(objective, folder, options):
    """Returns the seconds of each turn, and the share of padding in the tokens, by peer."""
    setting = {"folder": folder, "data_dir": str(options.data_dir), "batches": options.batches}
    setting |= {"count": 1 + options.turns, "coefficient": OBJECTIVES[objective]}
    with contextlib.ExitStack() as stack:
        workers = {
            peer: stack.enter_context(Worker(f"peers.{peer}:fine_tune", **setting))
            for peer in PEERS
        }
        turns = {peer: worker.turn for peer, worker in workers.items()}
        found = alternate(turns, options.turns, rest=REST)
        padding = {peer: worker.summary()["padding"] for peer, worker in workers.items()}
    return {peer: [facts["seconds"] for facts in each] for peer, each in found.items()}, padding


if __name__ == "__main__":
    sys.exit(exit_status(main))

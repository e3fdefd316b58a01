"""Scores fastText on SST-2, on the sentences that `training.finetune` samples with each seed.

    pip install fasttext-wheel
    python docs/evidence/fasttext/fasttext_sst2.py DATA_DIR

It prints the medians of three seeds, and writes all scores into scores.json beside it. DATA_DIR
holds SST-2 as TensorFlow Datasets prepares it. fastText has the settings of its own tutorial: word
bigrams, 25 epochs and a rate of 1. It has one thread, so that the same seed gives the same model.
Seconds are those of the processor.
"""

import json
import pathlib
import statistics
import sys
import tempfile
import time

import fasttext

from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import find_dataset

COUNTS = (1000, 10_000, None)  # None for all
SEEDS = range(3)


def write(path, examples):
    """Writes examples as fastText reads them: lower-cased words, as most that use it do."""
    rows = zip(examples.labels, examples.texts["text"], strict=True)
    lines = [f"__label__{label} {text.decode().lower().strip()}\n" for label, text in rows]
    path.write_text("".join(lines))
    return str(path)


def main(data_dir):
    dataset, data = find_dataset("sst2"), DataOptions(data_dir)
    train, validation = (load_examples(dataset, role, data) for role in ("train", "validation"))
    scores = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        held_out = write(folder / "validation", validation)
        for count in COUNTS:
            for seed in SEEDS:
                known = train if count is None else train.sample(count, seed)
                path = write(folder / "train", known)
                started = time.process_time()
                model = fasttext.train_supervised(
                    path, wordNgrams=2, epoch=25, lr=1.0, seed=seed, thread=1, verbose=0
                )
                seconds = time.process_time() - started
                if seed == SEEDS[0]:  # hundreds of megabytes
                    model.save_model(str(folder / "model"))
                    megabytes = (folder / "model").stat().st_size / 1e6
                scores.append(
                    {
                        "sentences": len(known),
                        "seed": seed,
                        "accuracy": model.test(held_out)[1],
                        "seconds": round(seconds, 2),
                        "megabytes": round(megabytes, 1),
                    }
                )
    for count in dict.fromkeys(score["sentences"] for score in scores):
        same = [score for score in scores if score["sentences"] == count]
        names = ("accuracy", "seconds", "megabytes")
        print(count, {name: statistics.median(score[name] for score in same) for name in names})
    path = pathlib.Path(__file__).with_name("scores.json")
    path.write_text(json.dumps(scores, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Scores fastText on the tasks of results.md, on the examples that `gpt1 finetune` learns from.

    pip install fasttext-wheel
    python docs/evidence/fasttext/fasttext_tasks.py DATA_DIR

It prints the medians of three seeds, and writes all scores into scores.json beside it. DATA_DIR
holds the data sets as TensorFlow Datasets prepares them. fastText has the settings of its own
tutorial: word bigrams, 25 epochs and a rate of 1. It has one thread, so that the same seed gives
the same model. Seconds are those of the processor.

It reads one text. So the second text of a pair follows the first, its words marked; of choices, it
learns whether each is right, alone; and of scores, the nearest whole number, and answers the mean
of their probabilities.
"""

import json
import pathlib
import statistics
import sys
import tempfile
import time

import fasttext
import numpy as np

from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import MULTIPLE_CHOICE, find_dataset
from training.evaluation.baselines import best_choices, flat_choices
from training.evaluation.metrics import score

SIZES = {  # None for all
    "sst2": (100, 1000, 3000, 10_000, None),
    "cola": (None,),
    "stsb": (None,),
    "mrpc": (None,),
    "rte": (None,),
    "snli_slice": (None,),
    "race_middle": (1000,),
    "dprd": (None,),
}
SEEDS = range(3)


def words(text, mark=""):
    """Returns lower-cased words on a line, as most that use fastText give them."""
    return " ".join(mark + word for word in text.lower().split())


def lines_of(dataset, examples):
    """Returns the text of each example, or of each of its choices."""
    if dataset.kind == MULTIPLE_CHOICE:
        return [words(choice) for choice in flat_choices(examples)[0]]
    sides = [
        [words(text.decode(), "2:" * side) for text in column]
        for side, column in enumerate(examples.texts.values())
    ]
    return [" ".join(parts) for parts in zip(*sides, strict=True)]


def labels_of(dataset, examples):
    """Returns the class of each line."""
    if dataset.kind == MULTIPLE_CHOICE:
        return flat_choices(examples)[1].astype(int).tolist()
    return np.rint(examples.labels).astype(int).tolist()


def answers_of(dataset, examples, model):
    """Returns the predicted class, choice or score of each example."""
    # Its Python function fails with NumPy 2; this is the one below it.
    found = [
        model.f.predict(f"{line}\n", -1, 0.0, "strict") for line in lines_of(dataset, examples)
    ]
    tables = [{int(label.removeprefix("__label__")): p for p, label in each} for each in found]
    if dataset.score_range is not None:
        return np.array([sum(c * p for c, p in t.items()) / sum(t.values()) for t in tables])
    if dataset.kind == MULTIPLE_CHOICE:
        return best_choices(examples, np.array([table[1] for table in tables]))
    return np.array([max(table, key=table.get) for table in tables])


def main(data_dir):
    data, scores = DataOptions(data_dir), []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for task, counts in SIZES.items():
            dataset = find_dataset(task)
            train = load_examples(dataset, "train", data).labelled()
            validation = load_examples(dataset, "validation", data).labelled()
            for count in counts:
                for seed in SEEDS:
                    known = train if count is None else train.sample(count, seed)
                    rows = zip(labels_of(dataset, known), lines_of(dataset, known), strict=True)
                    path = folder / "train"
                    path.write_text("".join(f"__label__{label} {line}\n" for label, line in rows))
                    started = time.process_time()
                    model = fasttext.train_supervised(
                        str(path), wordNgrams=2, epoch=25, lr=1.0, seed=seed, thread=1, verbose=0
                    )
                    seconds = time.process_time() - started
                    if seed == SEEDS[0]:  # hundreds of megabytes
                        model.save_model(str(folder / "model"))
                        megabytes = (folder / "model").stat().st_size / 1e6
                    metric = dataset.metrics[0]
                    answers = answers_of(dataset, validation, model)
                    scores.append(
                        {
                            "task": task,
                            "labels": len(known),
                            "seed": seed,
                            "metric": metric,
                            "score": float(score(validation, answers, (metric,))[metric]),
                            "seconds": round(seconds, 2),
                            "megabytes": round(megabytes, 1),
                        }
                    )
                same = scores[-len(SEEDS) :]
                names = ("score", "seconds", "megabytes")
                medians = {name: statistics.median(each[name] for each in same) for name in names}
                print(task, len(known), medians)
    path = pathlib.Path(__file__).with_name("scores.json")
    path.write_text(json.dumps(scores, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

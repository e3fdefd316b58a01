"""From sentences to a served answer: trains, exports, serves and queries a small GPT-1.

    python -m examples.quickstart                                     # the sentences that ship
    python -m examples.quickstart --task sst2 --data-dir DIR          # genuine SST-2
    python -m examples.quickstart --serve                             # and keeps the server running

Where the package is installed without a clone, it is `python -m gpt1_keras_examples.quickstart`.

It trains a small GPT-1 twice, from random weights and from weights that were pre-trained on books;
the difference is the paper's point. It exports the second model, serves it on a free port of this
machine, classifies three texts over gRPC, prints the answers and stops the server. With --serve,
the server runs until Ctrl-C, with a page to try the model in a browser.
"""

import argparse
import csv
import pathlib
import socket
import tempfile
import threading
import time

import keras

import gpt1_keras
from serving.export import export
from serving.export.export_options import Explanation
from serving.query import ask
from serving.server import Server
from training.datasets.data_options import DataOptions
from training.runs.finetune_options import FinetuneOptions
from training.runs.finetuning import finetune

PRESET = "gpt1_tiny_books"
SENTENCES = pathlib.Path(__file__).parent / "data" / "sentences.csv"
HELD_OUT = 240
EPOCHS = 8
QUESTIONS = [
    "The food was great and the staff were lovely.",
    "A dull, boring film, and a waste of money.",
    "I would recommend this charming little hotel to anyone.",
]


def train_on_sentences(load_weights: bool) -> tuple[keras.Model, float]:
    """Trains on the sentences that ship with the project; returns the model and its accuracy."""
    with open(SENTENCES, newline="") as file:
        rows = list(csv.DictReader(file))
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]

    keras.utils.set_random_seed(0)
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(
        PRESET, load_weights=load_weights, class_names=["negative", "positive"]
    )
    classifier.compile(optimizer=gpt1_keras.optimizer.finetuning_optimizer(1e-3))
    classifier.fit(texts[:-HELD_OUT], labels[:-HELD_OUT], epochs=EPOCHS)
    _, accuracy = classifier.evaluate(texts[-HELD_OUT:], labels[-HELD_OUT:], verbose=0)
    return classifier, accuracy


def train_on_task(
    task: str, data_dir: str | None, output: str, load_weights: bool
) -> tuple[keras.Model, float]:
    """Trains with the fine-tuning program; returns the best model and its validation score."""
    start = {"preset": PRESET} if load_weights else {"config": "gpt1_tiny", "tokenizer": PRESET}
    result = finetune(
        FinetuneOptions(task=task, epochs=1, learning_rate=5e-4, **start),
        output,
        DataOptions(data_dir),
    )
    return gpt1_keras.GPT1TextClassifier.from_preset(f"{output}/best"), result["score"]


def train(
    options: argparse.Namespace, output: str, load_weights: bool
) -> tuple[keras.Model, float]:
    """Trains on the chosen task; returns the model and its accuracy."""
    print("\nFrom the pre-trained weights:" if load_weights else "From random weights:")
    if options.task == "sentences":
        return train_on_sentences(load_weights)
    return train_on_task(options.task, options.data_dir, output, load_weights)


def free_port() -> int:
    """Returns the number of a port that is free on this machine."""
    with socket.create_server(("localhost", 0)) as listener:
        return listener.getsockname()[1]


def wait_for_interrupt(url: str) -> None:
    """Says where the page is, and returns once the user presses Ctrl-C."""
    print(f"\nTry the model in a browser: {url}\nCtrl-C stops the server.", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print("\nStopping.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Train, export, serve and query a small text classifier.",
    )
    parser.add_argument(
        "--task",
        choices=["sentences", "sst2"],
        default="sentences",
        help="what to train on: sentences that ship with the project, or genuine SST-2",
    )
    parser.add_argument("--data-dir", help="with --task sst2: prepared TensorFlow Datasets")
    parser.add_argument("--output", help="folder for model and export (default: temporary)")
    parser.add_argument(
        "--serve",
        action="store_true",
        help="keep the server running, with a page to try the model",
    )
    options = parser.parse_args()

    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        output = options.output or temporary
        try:
            _, without = train(options, f"{output}/from_scratch", load_weights=False)
            classifier, accuracy = train(options, f"{output}/pre_trained", load_weights=True)
        except (FileNotFoundError, ValueError) as error:
            parser.exit(1, f"error: {error}\n")
        print(
            f"\nValidation accuracy: {accuracy:.3f} with pre-training, {without:.3f} without, "
            "all else equal"
        )
        # The page also shows how much each word contributes to an answer.
        explanation = Explanation() if options.serve else None
        exported = export(classifier, f"{output}/export/{options.task}", explain=explanation)
        print(f"Exported to {exported}")
        rest_port = free_port() if options.serve else 0
        folder = f"{output}/export/{options.task}"
        with Server(options.task, folder, port=0, rest_api_port=rest_port) as server:
            print(f"Serving {options.task} over gRPC on port {server.port}\n")
            answers = ask(f"localhost:{server.port}", options.task, QUESTIONS)
            for text, answer in zip(QUESTIONS, answers):
                print(f"{answer['label']:9s} {max(answer['scores']):.3f}  {text}")
            print(f"\nDone in {time.monotonic() - started:.0f} seconds.")
            if options.serve:
                wait_for_interrupt(f"http://localhost:{rest_port}/")


if __name__ == "__main__":
    main()

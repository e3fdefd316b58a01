"""The whole line in one script: sentences, a small GPT-1, an export, a served answer.

    python -m examples.quickstart                                     # the sentences beside it
    python -m examples.quickstart --task sst2 --data-dir DIR          # genuine SST-2

It trains a small decoder from scratch, exports it, serves it on a free port of this machine, asks
three questions over gRPC, prints the answers and stops the server.
"""

import argparse
import csv
import pathlib
import tempfile
import time

import keras

import gpt1_keras
from gpt1_keras.presets import configuration
from serving.export import export
from serving.query import ask
from serving.server import Server
from training.finetune import Options, finetune

SENTENCES = pathlib.Path(__file__).parent / "data" / "sentences.csv"
HELD_OUT = 80
QUESTIONS = [
    "The food was great and the staff were lovely.",
    "A dull, boring film, and a waste of money.",
    "I would recommend this charming little hotel to anyone.",
]


def train_on_sentences():
    """Trains on the sentences that ship with the project; gives the model and its accuracy."""
    with open(SENTENCES, newline="") as file:
        rows = list(csv.DictReader(file))
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]

    keras.utils.set_random_seed(0)
    tokenizer = gpt1_keras.GPT1Tokenizer.learn(texts[:-HELD_OUT], num_merges=500)
    backbone = gpt1_keras.GPT1Backbone(tokenizer.vocabulary_size(), **configuration("gpt1_micro"))
    classifier = gpt1_keras.GPT1TextClassifier(
        backbone,
        class_names=["negative", "positive"],
        preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer),
    )
    # From scratch, a decoder wants a higher rate and more epochs than the paper's fine-tuning.
    classifier.compile(optimizer=gpt1_keras.optimizer.finetuning_optimizer(1e-3))
    classifier.fit(texts[:-HELD_OUT], labels[:-HELD_OUT], epochs=15)
    _, accuracy = classifier.evaluate(texts[-HELD_OUT:], labels[-HELD_OUT:], verbose=0)
    return classifier, accuracy


def train_on_task(task, data_dir, output):
    """Trains with the fine-tuning program; gives the best model and its validation score."""
    options = Options(task=task, config="gpt1_tiny", epochs=1, learning_rate=5e-4)
    result = finetune(options, output, data_dir=data_dir)
    return gpt1_keras.GPT1TextClassifier.from_preset(f"{output}/best"), result["score"]


def main():
    parser = argparse.ArgumentParser(
        prog="python -m examples.quickstart",
        description="Train, export, serve and ask a small text classifier.",
    )
    parser.add_argument(
        "--task",
        choices=["sentences", "sst2"],
        default="sentences",
        help="what to train on: sentences that ship with the project, or genuine SST-2",
    )
    parser.add_argument("--data-dir", help="with --task sst2: prepared TensorFlow Datasets")
    parser.add_argument("--output", help="folder to keep the model and the export in")
    options = parser.parse_args()

    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        output = options.output or temporary
        try:
            if options.task == "sentences":
                classifier, accuracy = train_on_sentences()
            else:
                run = f"{output}/run"
                classifier, accuracy = train_on_task(options.task, options.data_dir, run)
        except (FileNotFoundError, ValueError) as error:
            parser.exit(1, f"error: {error}\n")
        print(f"\nValidation accuracy: {accuracy:.3f}, from scratch")
        print(f"Exported to {export(classifier, f'{output}/export/{options.task}')}")
        with Server(options.task, f"{output}/export/{options.task}", port=0) as server:
            print(f"Serving {options.task} over gRPC on port {server.port}\n")
            answers = ask(f"localhost:{server.port}", options.task, QUESTIONS)
            for text, answer in zip(QUESTIONS, answers):
                print(f"{answer['label']:9s} {max(answer['scores']):.3f}  {text}")
    print(f"\nDone in {time.monotonic() - started:.0f} seconds.")


if __name__ == "__main__":
    main()

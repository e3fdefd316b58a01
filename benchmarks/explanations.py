"""Whether the words that `explain` ranks first are those that an answer is due to: deletion curves.

    python -m benchmarks.explanations --model runs/sst2/best --data-dir DIR --plot curves.svg

A classifier of SST-2 is exported with each method of `explain`, and answers sentences of the
validation split. Then words are taken out of each sentence, a blank in their place, one after the
other: those that speak most for the answer first, or at random. The sooner the answer changes, the
more it was due to these words. All answers are of TensorFlow's C++ runtime.
"""

import argparse
import pathlib
import shlex
import sys
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from benchmarks.common.setting import table
from gpt1_keras.presets import load_task
from serving.export import export
from serving.export.export_options import INTEGRATED_GRADIENTS, METHODS, Explanation
from serving.server.models.servable import Servable
from training.evaluation.plots import BLUE, ORANGE, new_figure, save

_BATCH_SIZE = 32
_SHUFFLES = 5
_MOST_DELETED = 8
_COLORS = dict(zip(METHODS, (BLUE, ORANGE)))
RANDOM = "at random"


def main():
    options = _parser().parse_args()
    sentences = tfds.load("glue/sst2", split="validation", data_dir=options.data_dir)
    texts = [each["sentence"] for each in tfds.as_numpy(sentences.take(options.sentences))]
    curves, errors = {}, ""
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.exports or temporary
        for method in METHODS:
            if not pathlib.Path(folder, method, "1").exists():
                explanation = Explanation(method, options.steps)
                export(load_task(options.model), f"{folder}/{method}", explanation=explanation)
            servable = Servable(method, 1, pathlib.Path(folder, method, "1"))
            answers = ask(servable, "explain", texts)
            if method == INTEGRATED_GRADIENTS:
                errors = describe_errors(answers)
            ranked = [np.argsort(-each["word_shares"][: each["num_words"]]) for each in answers]
            curves[method] = changed(servable, texts, answers, ranked)
        random = np.random.default_rng(0)
        shuffled = [[random.permutation(len(order)) for order in ranked] for _ in range(_SHUFFLES)]
        at_random = [changed(servable, texts, answers, orders) for orders in shuffled]
        curves[RANDOM] = np.mean(at_random, axis=0)
    header = ["words taken out", *map(str, range(1, _MOST_DELETED + 1))]
    rows = [[name, *(f"{100 * share:.1f} %" for share in each)] for name, each in curves.items()]
    command = shlex.join(["python", "-m", "benchmarks.explanations", *sys.argv[1:]])
    print(
        f"Answers that changed, of {len(texts)}. `{command}`\n\n{table(header, rows)}\n\n{errors}"
    )
    if options.plot:
        plot(curves, options.plot)


def ask(servable, signature, texts):
    """The outputs of a signature for each text, dicts."""
    answers = []
    for start in range(0, len(texts), _BATCH_SIZE):
        batch = {"text": tf.make_tensor_proto(texts[start : start + _BATCH_SIZE])}
        outputs = servable.predict(signature, batch)
        answers += [dict(zip(outputs, row)) for row in zip(*outputs.values())]
    return answers


def describe_errors(answers):
    """How far the shares by gradients are from what they should sum to."""
    errors = np.abs([each["completeness_error"] for each in answers])
    totals = np.abs([each["word_shares"].sum() for each in answers])
    median, high = np.percentile(errors, [50, 90])
    return (
        f"Completeness error: median {median:.4f}, 90th percentile {high:.4f} nats, where shares "
        f"sum to {np.median(totals):.2f} in the median."
    )


def changed(servable, texts, answers, orders):
    """The share of texts whose label is another without their first 1, 2, ... words of an order."""
    shares = []
    for count in range(1, _MOST_DELETED + 1):
        rest = [
            without(text, answer, order[:count])
            for text, answer, order in zip(texts, answers, orders)
        ]
        labels = [each["label"] for each in ask(servable, "serving_default", rest)]
        shares.append(np.mean([new != old["label"] for new, old in zip(labels, answers)]))
    return np.array(shares)


def without(text, answer, words):
    """A text, bytes, with a blank in the place of each of some words, given by their indices."""
    for word in sorted(words, key=lambda word: -answer["word_starts"][word]):
        start, end = answer["word_starts"][word], answer["word_ends"][word]
        text = text[:start] + b" " + text[end:]
    return text


def plot(curves, path):
    """Draws the curves; `path` ends in .svg or .png."""
    figure, [axes] = new_figure(7, 3.6)
    counts = range(_MOST_DELETED + 1)
    for name, shares in curves.items():
        style = {"color": _COLORS.get(name, "0.5"), "linestyle": "-" if name in _COLORS else "--"}
        axes.plot(counts, [0, *(100 * shares)], label=name, marker="o", markersize=4, **style)
    axes.set_xlabel("words taken out")
    axes.set_ylabel("answers that changed, %")
    axes.set_title("SST-2: the words that explain ranks first, and words at random")
    axes.set_xlim(0, _MOST_DELETED)
    axes.set_ylim(0)
    axes.legend(edgecolor="none", title="taken out by", alignment="left")
    save(figure, path)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.explanations",
        description="Whether the words that `explain` ranks first are those an answer is due to.",
    )
    parser.add_argument("--model", required=True, help="preset of a classifier of SST-2")
    parser.add_argument("--data-dir", help="folder of TensorFlow Datasets with SST-2")
    parser.add_argument("--exports", help="folder of the exports, written where they are missing")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--steps", type=int, default=Explanation.steps)
    parser.add_argument("--plot", help="picture to write, .svg or .png")
    return parser


if __name__ == "__main__":
    main()

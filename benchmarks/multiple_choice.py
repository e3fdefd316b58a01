"""Multiple choice: the shared prefix read once, beside every choice read alone.

    python -m benchmarks.multiple_choice --data-dir DIR --tokenizer DIR

Real questions of RACE-middle's validation split, random weights. Both ways score the same batches,
in turns, and have to give the same scores. The machine must be idle, as for
`benchmarks.training_step`.
"""

import argparse
import shlex
import statistics
import sys
import time

import numpy as np
import tensorflow as tf

import gpt1_keras
from benchmarks.common.setting import SIZES, describe, table
from gpt1_keras.presets.tokenizers import load_tokenizer
from gpt1_keras.tasks.heads import last_token_states
from gpt1_keras.tokenization.padding import pad, pad_choices
from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import DATASETS


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.multiple_choice",
        description="Questions per second, with the shared prefix read once and every time.",
    )
    add = parser.add_argument
    add(
        "--data-dir", required=True, help="folder of prepared TensorFlow Datasets, with race/middle"
    )
    add("--tokenizer", required=True, help="folder of a tokenizer, such as the published one")
    add("--questions", type=int, default=48, help="how many (default: %(default)s)")
    add("--batch-size", type=int, default=4, help="questions at a time (default: %(default)s)")
    add("--size", choices=SIZES, default="paper", help="default: %(default)s")
    options = parser.parse_args()

    tokenizer = load_tokenizer(options.tokenizer)
    size = {**SIZES[options.size], "vocabulary_size": tokenizer.vocabulary_size()}
    backbone = gpt1_keras.GPT1Backbone(**size)
    random = np.random.default_rng(0)
    for variable in backbone.weights:
        variable.assign(variable + random.normal(0.0, 0.02, variable.shape))
    length = size["max_sequence_length"]
    chooser = gpt1_keras.GPT1MultipleChoice(
        backbone, gpt1_keras.GPT1MultipleChoicePreprocessor(tokenizer, length)
    )
    ways = {"together": _together(chooser, length), "alone": _alone(chooser, length)}

    examples = load_examples(DATASETS["race_middle"], "validation", DataOptions(options.data_dir))
    texts = examples.sample(options.questions, seed=0).tensors()
    batches = tf.data.Dataset.from_tensor_slices(texts).batch(options.batch_size)
    seconds, difference, tokens = {name: [] for name in ways}, 0.0, dict.fromkeys(ways, 0)
    for batch in batches:
        texts = chooser.preprocessor.as_tensors(batch)
        tree, _ = chooser.preprocessor.transform([texts[f] for f in chooser.preprocessor.fields])
        scores = {}
        for name, (prepare, score) in ways.items():
            inputs = prepare(tree)
            tokens[name] += int(tf.size(inputs["token_ids"]))
            score(inputs)  # traced, where its shape is new
            started = time.perf_counter()
            scores[name] = score(inputs).numpy()
            seconds[name].append(time.perf_counter() - started)
        difference = max(difference, np.abs(scores["together"] - scores["alone"]).max())

    ratios = [alone / together for alone, together in zip(seconds["alone"], seconds["together"])]
    command = shlex.join(["python", "-m", "benchmarks.multiple_choice", *sys.argv[1:]])
    rows = [
        [
            name,
            f"{options.questions / sum(seconds[name]):.2f}",
            f"{tokens[name] / options.questions:.0f}",
            f"{statistics.median(ratios):.2f}" if name == "together" else "1.00",
        ]
        for name in ways
    ]
    header = ["choices", "questions/s", "tokens a question, with padding", "speed"]
    print(
        f"{describe()}. `{command}`\n\n{table(header, rows)}\n\nThe speed is the median of "
        f"{len(ratios)} batches, {min(ratios):.2f} to {max(ratios):.2f}; the greatest difference "
        f"of a score is {difference:.1e}."
    )


def _together(chooser, length):
    """The task's own way: `(prepare, score)`."""
    score = tf.function(lambda inputs: chooser(inputs, training=False))
    return lambda tree: pad_choices(tree, chooser.preprocessor.tokenizer, length), score


def _alone(chooser, length):
    """Each choice after a prefix of its own: `(prepare, score)`."""

    def prepare(tree):
        rows = []
        for ids, branches in zip(tree["token_ids"], tree["branches"]):
            prefix = ids[branches == 0]
            for number in range(1, int(tf.reduce_max(branches)) + 1):
                rows.append(tf.concat([prefix, ids[branches == number]], axis=0))
        rows = tf.ragged.stack(rows).with_row_splits_dtype(tf.int64)
        return pad(rows, chooser.preprocessor.tokenizer, length)

    @tf.function
    def score(inputs):
        states = chooser.backbone({"token_ids": inputs["token_ids"]}, training=False)
        scores = chooser.head(last_token_states(states, inputs["padding_mask"]))
        return tf.reshape(scores, [-1, 4])  # RACE has four answers to each question

    return prepare, score


if __name__ == "__main__":
    main()

"""Asks what frozen weights know of two texts: linear models of their hidden states and attention.

python docs/evidence/probes/probe.py BOOKS DATA_DIR scores.json NAME=PRESET [NAME=PRESET ...]

Two texts are framed as in fine-tuning, `<start>` A `<delimiter>` B `<extract>`. In the first three
questions, A has 60 words of a novel that no model has read, and B has 40:

- again: the first 40 words of A, or of another passage?
- half again: was a random half of these words replaced by another passage's, or all of them?
- share: which share of these words was replaced? 0, 1/4, 1/2, 3/4 or 1.

The others are data sets' own. What the linear models see: the state at `<extract>` after each
block; the mean of the last block's states; matching heads, which is how much each head of each
block attends from a token of B to equal tokens of A, on average, and from `<extract>` to tokens
that are in both texts; the share of B's words that are in A. All have the same examples: up to
2,200 to learn from, at most 1,000 to be scored on.
"""

import functools
import json
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from scipy import stats
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gpt1_keras
from gpt1_keras.models.attention import masked_scores, visible_keys
from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import DATASETS

LEARNED, SCORED, BATCH, LENGTH = 2200, 1000, 64, 256
WORDS, SHOWN = 60, 40
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
TASKS = ("stsb", "mrpc", "rte", "snli_slice")


def passages(books):
    """Returns lists of 60 words of the validation novels, in a random order."""
    paths = sorted((pathlib.Path(books) / "valid").rglob("*.txt"))
    words = [word for path in paths for word in path.read_text(encoding="utf-8").split()]
    starts = np.random.default_rng(0).permutation(len(words) // WORDS) * WORDS
    return [words[start : start + WORDS] for start in starts]


def made_up_pairs(books):
    """Yields each question's name, its two texts and its answers."""
    all_passages, count = passages(books), LEARNED + SCORED
    random = np.random.default_rng(1)
    for name, shares in (("again", (0.0, 1.0)), ("half again", (0.5, 1.0)), ("share", SHARES)):
        first, second, found = [], [], iter(all_passages)
        answers = random.permutation(np.resize(np.arange(len(shares)), count))
        for answer in answers:
            a, b = next(found), next(found)
            is_replaced = random.permutation(SHOWN) < round(shares[answer] * SHOWN)
            first.append(" ".join(a))
            second.append(" ".join(np.where(is_replaced, b[:SHOWN], a[:SHOWN])))
        is_number = len(shares) > 2
        yield name, (first, second), np.array(shares)[answers] if is_number else answers


def real_pairs(data_dir):
    """Yields each data set's name, its two texts and its labels."""
    for name in TASKS:
        parts = []
        for role, most in (("train", LEARNED), ("validation", SCORED)):
            examples = load_examples(DATASETS[name], role, DataOptions(data_dir)).labelled()
            parts.append(examples.sample(min(most, len(examples)), 0))
        learned, scored = parts
        texts = tuple(
            [text.decode() for part in parts for text in part.texts[field]]
            for field in DATASETS[name].fields
        )
        yield name, texts, np.concatenate([learned.labels, scored.labels]), len(learned)


def matches(probabilities, equal):
    """Returns the mean attention of rows to equal columns, [heads]."""
    return (probabilities * equal).sum(-1).mean(-1)


def features_of(backbone, tokenizer, texts):
    """Returns dict from what a linear model sees to float [examples, features]."""
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(
        tokenizer, LENGTH, fields=("first", "second")
    )
    run = tf.function(functools.partial(states_and_attention, backbone))
    rows = []
    for start in range(0, len(texts[0]), BATCH):
        batch = preprocessor(tuple(text[start : start + BATCH] for text in texts), pad_to="bucket")
        ids, mask = (batch[name].numpy() for name in ("token_ids", "padding_mask"))
        states, attention = keras.tree.map_structure(np.asarray, run(batch["token_ids"]))
        for row, length in enumerate(mask.sum(-1)):
            rows.append(
                features_of_row(
                    ids[row, :length],
                    [each[row, :length] for each in states],
                    [each[row, :, :length, :length] for each in attention],
                    tokenizer.delimiter_token_id,
                )
            )
    shared = []
    for a, b in zip(*(map(str.lower, each) for each in texts)):
        known = set(a.split())
        shared.append([np.mean([word in known for word in b.split()] or [0.0])])
    found = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return {**found, "words in common": np.array(shared)}


def states_and_attention(backbone, ids):
    """Returns each block's states [batch, length, width] and its attention [batch, heads, ...]."""
    length = ids.shape[1]
    is_visible = visible_keys(length, length)
    x, states, attention = backbone.embedding(ids), [], []
    for block in backbone.blocks:
        qkv = ops.split(block.project(x, np.arange(length)), 3, axis=-1)
        query, key, value = (heads(part, block.num_heads) for part in qkv)
        probabilities = ops.softmax(masked_scores(query * query.shape[-1] ** -0.5, key, is_visible))
        attended = ops.transpose(ops.matmul(probabilities, value), (0, 2, 1, 3))
        x = block.finish(ops.reshape(attended, x.shape), x)
        states.append(x)
        attention.append(probabilities)
    return states, attention


def heads(x, count):
    """Returns [batch, heads, length, head_dim] of [batch, length, width]."""
    return ops.transpose(ops.reshape(x, (*x.shape[:2], count, -1)), (0, 2, 1, 3))


def features_of_row(ids, states, attention, delimiter_id):
    """Returns the features of one pair: `ids` [length], without padding, as all arrays."""
    delimiter = int(np.flatnonzero(ids == delimiter_id)[0])
    first, second = slice(1, delimiter), slice(delimiter + 1, -1)
    equal = ids[second, None] == ids[None, first]
    in_both = np.isin(ids, ids[first]) & np.isin(ids, ids[second])
    looks = []
    for block in attention:
        looks.append(matches(block[:, second, first], equal))
        looks.append(matches(block[:, -1:], in_both[None]))
    return {
        **{f"<extract>, block {number}": each[-1] for number, each in enumerate(states, 1)},
        "mean, last block": states[-1].mean(0),
        "matching heads": np.concatenate(looks),
    }


def score(features, answers, learned):
    """Returns the score of a linear model, in hundredths: accuracy, or Pearson's correlation."""
    train, test = slice(learned), slice(learned, None)
    is_number = answers.dtype.kind == "f"
    ridge = (RidgeCV if is_number else RidgeClassifierCV)(np.logspace(-2, 5, 15))
    model = make_pipeline(StandardScaler(), ridge).fit(features[train], answers[train])
    if is_number:
        return 100 * stats.pearsonr(model.predict(features[test]), answers[test])[0]
    return 100 * model.score(features[test], answers[test])


def main():
    books, data_dir, output, *presets = sys.argv[1:]
    pairs = [(*each, LEARNED) for each in made_up_pairs(books)] + list(real_pairs(data_dir))
    scores = {}
    for name, preset in (each.split("=", 1) for each in presets):
        lm = gpt1_keras.GPT1CausalLM.from_preset(preset)
        for question, texts, answers, learned in pairs:
            features = features_of(lm.backbone, lm.preprocessor.tokenizer, texts)
            found = {
                seen: round(float(score(each, answers, learned)), 1)
                for seen, each in features.items()
            }
            scores.setdefault(question, {})[name] = found
            print(name, question, found, flush=True)
    pathlib.Path(output).write_text(json.dumps(scores, indent=1) + "\n")


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    main()

"""Pairs without an order: each is read in both orders, and gets a class or a score."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from gpt1_keras.optimization.optimizer import finetuning_optimizer

PAIRS = (
    ["a good film", "a bad film", "the staff were kind", "a dull one"],
    ["a lovely film and one", "a lovely film", "kind staff", "the staff"],
)
SCORES = np.array([4.5, 0.5, 5.0, 0.0])


def make_similarity(tokenizer, **arguments):
    """A small model, run eagerly, whose weights are far from the initial ones."""
    preprocessor = gpt1_keras.GPT1TextSimilarityPreprocessor(tokenizer, 24)
    keras.utils.set_random_seed(0)
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 64}
    backbone = gpt1_keras.GPT1Backbone(tokenizer.vocabulary_size(), max_sequence_length=24, **sizes)
    model = gpt1_keras.GPT1TextSimilarity(backbone, preprocessor=preprocessor, **arguments)
    random = np.random.default_rng(4)
    for variable in model.weights:
        variable.assign(variable + random.normal(0.0, 0.3, variable.shape))
    model.compile(run_eagerly=True)
    return model


@pytest.fixture(scope="module")
def scorer(tiny_tokenizer):
    return make_similarity(tiny_tokenizer, score_range=(0, 5))


@pytest.fixture(scope="module")
def classifier(tiny_tokenizer):
    return make_similarity(tiny_tokenizer, class_names=["other", "same"])


def test_the_token_ids_of_a_pair(tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1TextSimilarityPreprocessor(tiny_tokenizer, 24)
    start, delimiter = tiny_tokenizer.start_token_id, tiny_tokenizer.delimiter_token_id
    extract = tiny_tokenizer.extract_token_id
    inputs = preprocessor((["a film", ""], ["the staff were", "kind"]), pad_to="bucket")
    assert inputs["token_ids"].shape == inputs["padding_mask"].shape == (2, 2, 16)
    for row, pair in enumerate([("a film", "the staff were"), ("", "kind")]):
        for order, (first, second) in enumerate([pair, pair[::-1]]):
            ids = [start, *tiny_tokenizer(first).numpy(), delimiter]
            ids += [*tiny_tokenizer(second).numpy(), extract]
            assert inputs["token_ids"][row, order, : len(ids)].numpy().tolist() == ids
            assert inputs["padding_mask"][row, order].numpy().sum() == len(ids)


def test_the_scores_are_of_the_sum_of_both_extract_states(classifier, tiny_tokenizer):
    start, delimiter = tiny_tokenizer.start_token_id, tiny_tokenizer.delimiter_token_id
    extract = tiny_tokenizer.extract_token_id
    rows = []
    for pair in zip(*PAIRS):
        state = 0.0
        for first, second in (pair, pair[::-1]):
            ids = [start, *tiny_tokenizer(first).numpy(), delimiter]
            ids += [*tiny_tokenizer(second).numpy(), extract]
            state += np.array(classifier.backbone({"token_ids": np.array([ids])}))[0, -1]
        rows.append(state @ np.array(classifier.head.kernel) + np.array(classifier.head.bias))
    np.testing.assert_allclose(classifier.predict(PAIRS, verbose=0), rows, rtol=0, atol=2e-5)


@pytest.mark.slow
def test_the_order_does_not_matter(scorer):
    there = scorer.predict(PAIRS, verbose=0)
    assert there.shape == (4,) and np.ptp(there) > 1e-2
    np.testing.assert_allclose(scorer.predict(PAIRS[::-1], verbose=0), there, atol=1e-5)


def test_a_score_is_the_mean_over_its_integers(scorer):
    logits = np.array(scorer(scorer.preprocessor(PAIRS)), np.float64)
    assert logits.shape == (4, 6)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = probabilities @ [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(scorer.predict(PAIRS, verbose=0), expected, rtol=1e-5)


def _repeated(labels, times=40):
    """The pairs and their labels as the one batch of so many updates."""
    return tf.data.Dataset.from_tensors((PAIRS, labels)).repeat(times)


@pytest.mark.slow
def test_fit_learns_scores(tiny_tokenizer):
    scorer = make_similarity(tiny_tokenizer, score_range=(0, 5))
    scorer.compile(finetuning_optimizer(1e-2), lm_coefficient=0.0, jit_compile=False)
    data = _repeated(SCORES)
    before = scorer.evaluate(PAIRS, SCORES, verbose=0)
    scorer.fit(data, verbose=0)
    assert scorer.evaluate(PAIRS, SCORES, verbose=0) < before / 2
    found = scorer.predict(PAIRS, verbose=0)
    assert np.corrcoef(found, SCORES)[0, 1] > 0.9


@pytest.mark.slow
def test_fit_learns_classes(tiny_tokenizer):
    classifier = make_similarity(tiny_tokenizer, class_names=["other", "same"])
    classifier.compile(finetuning_optimizer(1e-2), lm_coefficient=0.0, jit_compile=False)
    classifier.fit(_repeated(["same", "other", "same", "other"]), verbose=0)
    assert classifier.predict(PAIRS, verbose=0).argmax(axis=1).tolist() == [1, 0, 1, 0]

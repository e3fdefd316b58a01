"""A fresh head is fitted alone: to the backbone's states, as scikit-learn's models are."""

import contextlib

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from sklearn.linear_model import LogisticRegression

import gpt1_keras
from tests.gpt1_keras.tasks.test_text_classifier import (
    CLASS_NAMES,
    LABELS,
    NAMES,
    NOUNS,
    TEXTS,
    make_backbone,
)

UNSEEN = [f"{word} and {word} {noun}" for word in ("bad", "good", "lovely") for noun in NOUNS]


def make(tokenizer, cls=gpt1_keras.GPT1TextClassifier, scope=contextlib.nullcontext, **arguments):
    """A small model whose states tell texts apart, as initial weights hardly do."""
    keras.utils.set_random_seed(0)
    preprocessor = cls.preprocessor_cls(tokenizer, 24)
    with scope():
        model = cls(make_backbone(tokenizer), preprocessor=preprocessor, **arguments)
    random = np.random.default_rng(4)
    for variable in model.backbone.weights:
        variable.assign(variable + random.normal(0.0, 0.3, variable.shape))
    return model


@pytest.fixture
def classifier(tiny_tokenizer):
    return make(tiny_tokenizer, class_names=CLASS_NAMES)


def states_of(model, texts):
    """The hidden states at the extract tokens."""
    inputs = model.preprocessor(texts)
    states = np.array(model.backbone({"token_ids": inputs["token_ids"]}))
    return states[np.arange(len(texts)), np.sum(inputs["padding_mask"], axis=1) - 1]


def test_it_answers_as_logistic_regression_on_the_states(classifier):
    before = [np.array(variable) for variable in classifier.backbone.weights]
    classifier.fit_head(TEXTS, NAMES)
    for variable, old in zip(classifier.backbone.weights, before, strict=True):
        np.testing.assert_array_equal(variable, old)
    expected = LogisticRegression(max_iter=1000).fit(states_of(classifier, TEXTS), LABELS)
    assert classifier.evaluate(TEXTS, NAMES, verbose=0)[1] == 1.0
    found = classifier.predict(UNSEEN, verbose=0)
    wanted = expected.decision_function(states_of(classifier, UNSEEN))
    assert scipy.stats.spearmanr(found[:, 1] - found[:, 0], wanted).statistic > 0.9
    # What was compiled is untouched: `fit` goes on with its own optimizer.
    assert int(classifier.optimizer.iterations) == 0


@pytest.mark.slow
def test_batches_and_weights(classifier, tiny_tokenizer):
    """Wrong labels that weigh nothing, in a dataset of batches, change nothing."""
    wrong = [*NAMES, *reversed(NAMES)]
    weights = np.repeat([1.0, 0.0], len(NAMES)).astype("float32")
    batches = tf.data.Dataset.from_tensor_slices(([*TEXTS, *TEXTS], wrong, weights)).batch(8)
    classifier.fit_head(batches)
    assert classifier.evaluate(TEXTS, NAMES, verbose=0)[1] == 1.0
    one_sided = make(tiny_tokenizer, class_names=CLASS_NAMES)
    one_sided.fit_head(TEXTS, NAMES, class_weight={"positive": 0})
    assert set(one_sided.predict([*TEXTS, *UNSEEN], verbose=0).argmax(-1)) == {0}


def test_scores(tiny_tokenizer):
    similarity = make(tiny_tokenizer, gpt1_keras.GPT1TextSimilarity, score_range=(0, 5))
    pairs = (TEXTS, ["a good film"] * len(TEXTS))
    scores = 5.0 * LABELS
    similarity.fit_head(pairs, scores)
    assert scipy.stats.pearsonr(similarity.predict(pairs, verbose=0), scores).statistic > 0.9


def test_under_a_strategy(tiny_tokenizer):
    model = make(
        tiny_tokenizer, scope=tf.distribute.MirroredStrategy(["CPU:0"]).scope,
        class_names=CLASS_NAMES,
    )  # fmt: skip
    model.fit_head(TEXTS, NAMES)
    assert model.evaluate(TEXTS, NAMES, verbose=0)[1] == 1.0


@pytest.mark.parametrize(
    ("cls", "data", "message"),
    [
        (gpt1_keras.GPT1MultipleChoice, (TEXTS, LABELS), "Received: a ChoiceHead, windows=1"),
        (gpt1_keras.GPT1CausalLM, (TEXTS,), "Received: a Head, windows=1"),
        (gpt1_keras.GPT1TextClassifier, (TEXTS,), "a label for each example. Received: none"),
        (gpt1_keras.GPT1TextClassifier, (iter([(TEXTS, LABELS)]),), "Received: list_iterator"),
        (gpt1_keras.GPT1TextClassifier, (TEXTS, ["good"] * len(TEXTS)), "Received: 'good'"),
    ],
)
def test_what_it_does_not_take(tiny_tokenizer, cls, data, message):
    is_classifier = cls is gpt1_keras.GPT1TextClassifier
    model = make(tiny_tokenizer, cls, **({"class_names": CLASS_NAMES} if is_classifier else {}))
    with pytest.raises(ValueError, match=message):
        model.fit_head(*data)


def test_a_model_that_is_not_compiled(tiny_tokenizer):
    model = make(tiny_tokenizer, class_names=CLASS_NAMES, compile=False)
    with pytest.raises(ValueError, match="call `compile`"):
        model.fit_head(TEXTS, NAMES)

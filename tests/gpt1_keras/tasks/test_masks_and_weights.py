"""Padding masks and weights of examples that users pass as arrays."""

import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras

LEFT = np.array([[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]])
HOLES = np.array([[1, 0, 1, 0, 1, 1], [1, 1, 1, 0, 1, 1]])
LABELS = np.array([0, 1])


def make_task(backbone, cls):
    return cls(backbone, num_classes=2, dropout=0.0)


def spread(mask, is_pair):
    """Tokens where the mask is 1, each text's the same for every mask."""
    token_ids = np.full(mask.shape, 3)
    for row, is_token in zip(token_ids, mask == 1):
        row[is_token] = np.arange(5, 5 + is_token.sum())
    inputs = {"token_ids": token_ids, "padding_mask": mask}
    return {k: np.stack([v, v], axis=1) for k, v in inputs.items()} if is_pair else inputs


@pytest.fixture(scope="module")
def backbone():
    return gpt1_keras.GPT1Backbone(20, 1, 2, 16, 32, max_sequence_length=8, dropout=0.0)


@pytest.fixture(params=[gpt1_keras.GPT1TextClassifier, gpt1_keras.GPT1TextSimilarity])
def task_cls(request):
    return request.param


@pytest.mark.parametrize("mask", [LEFT, HOLES], ids=["left", "holes"])
def test_a_task_follows_the_mask(backbone, task_cls, mask):
    task, is_pair = make_task(backbone, task_cls), task_cls is gpt1_keras.GPT1TextSimilarity
    right = spread(-np.sort(-mask, axis=1), is_pair)
    expected = task.predict(right, verbose=0)
    np.testing.assert_allclose(task.predict(spread(mask, is_pair), verbose=0), expected, atol=1e-5)
    # L1 reads the order of the tokens, and which of them are there.
    task.compile("sgd", lm_coefficient=0.5, run_eagerly=True)
    losses = [
        float(task.forward_loss(inputs, tf.constant(LABELS), None, training=True)[1])
        for inputs in (right, spread(mask, is_pair))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_language_model_follows_the_mask(backbone):
    lm, left = gpt1_keras.GPT1CausalLM(backbone), spread(LEFT, False)
    right = spread(-np.sort(-LEFT, axis=1), False)
    found, expected = lm.predict(left, verbose=0), lm.predict(right, verbose=0)
    np.testing.assert_allclose(found[0, 2:], expected[0, :4], atol=1e-5)
    np.testing.assert_allclose(found[1, 1:], expected[1, :5], atol=1e-5)


@pytest.mark.slow
def test_an_example_without_weight_trains_nothing(backbone, task_cls):
    """L3 as a whole is weighted, where L1 once was not."""
    is_pair = task_cls is gpt1_keras.GPT1TextSimilarity
    task = make_task(backbone, task_cls)
    task.compile("sgd", lm_coefficient=0.5)
    inputs, weights = spread(LEFT, is_pair), np.array([0.0, 0.0], "float32")
    before = [variable.numpy() for variable in task.trainable_variables]
    logs = task.fit(inputs, LABELS, sample_weight=weights, verbose=0).history
    assert logs["loss"] == [0.0]
    for variable, value in zip(task.trainable_variables, before):
        np.testing.assert_array_equal(variable.numpy(), value)

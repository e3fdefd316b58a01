"""L1, L2 and L3 against transcriptions of the paper's equations in loops over NumPy arrays."""

import keras
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.optimization.objective import (
    AuxiliaryLanguageModeling,
    SoftLabelCrossEntropy,
    branch_weights,
    next_token_loss,
    sequence_weights,
)

TEXTS = np.array(["a good film, and a lovely one", "", "dull", "a bad staff " * 6])
LABELS = np.array([1, 0, 0, 2])


def log_probability(logits, choice):
    shifted = logits - logits.max()
    return shifted[choice] - np.log(np.sum(np.exp(shifted)))


def l1(hidden_states, table, token_ids, padding_mask):
    """For each sequence, the mean cross-entropy of its real tokens but the first."""
    losses = []
    for states, ids, mask in zip(hidden_states, token_ids, padding_mask):
        terms = [
            -log_probability(table @ states[position], ids[position + 1])
            for position in range(len(ids) - 1)
            if mask[position + 1]
        ]
        losses.append(np.mean(terms) if terms else 0.0)
    return np.array(losses)


def l2(scores, labels):
    return np.mean([-log_probability(row, label) for row, label in zip(scores, labels)])


@pytest.fixture
def classifier(tiny_tokenizer):
    """A classifier without dropout, with weights that are far from their initial ones."""
    keras.utils.set_random_seed(0)
    backbone = gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(),
        num_layers=1,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=128,
        max_sequence_length=64,
        dropout=0.0,
    )
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    classifier = gpt1_keras.GPT1TextClassifier(
        backbone, num_classes=3, preprocessor=preprocessor, dropout=0.0
    )
    random = np.random.default_rng(2)
    for variable in classifier.weights:
        variable.assign(variable + random.normal(0.0, 0.3, variable.shape))
    return classifier


@pytest.fixture
def parts(classifier):
    """NumPy's inputs, hidden states and token table, and its L1 of each text."""
    inputs = {name: np.array(value) for name, value in classifier.preprocessor(TEXTS).items()}
    states = np.array(classifier.backbone({"token_ids": inputs["token_ids"]}), np.float64)
    table = np.array(classifier.backbone.token_embedding.embeddings, np.float64)
    return inputs, states, table


def found_l1(hidden_states, token_embedding, token_ids, padding_mask):
    """L1 by our functions, of hidden states as NumPy has them."""
    states = keras.ops.cast(hidden_states, "float32")[:, :-1]
    weights = sequence_weights(padding_mask)
    return next_token_loss(states, token_embedding, token_ids[:, 1:], weights, training=False)


def test_l1(classifier, parts):
    inputs, states, table = parts
    special = set(classifier.preprocessor.tokenizer.special_token_ids)
    assert special & set(inputs["token_ids"].ravel())  # they are predicted too
    found = found_l1(states, classifier.backbone.token_embedding, **inputs)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(found, l1(states, table, **inputs).mean(), rtol=1e-5)


def test_l1_does_not_see_padding(classifier, parts):
    inputs, states, table = parts
    junk = np.where(inputs["padding_mask"] == 1, inputs["token_ids"], 9)
    embedding = classifier.backbone.token_embedding
    found = found_l1(states, embedding, junk, inputs["padding_mask"])
    np.testing.assert_allclose(found, l1(states, table, **inputs).mean(), rtol=1e-5)


def test_sequences_of_one_token_and_of_none_cost_nothing(classifier, parts):
    _, states, _ = parts
    mask = np.zeros((4, states.shape[1]), int)
    mask[0, :2] = mask[1, :1] = mask[2, :3] = 1
    ids = np.ones_like(mask)
    embedding = classifier.backbone.token_embedding
    found = float(found_l1(states, embedding, ids, mask))
    with_targets = float(found_l1(states[::2], embedding, ids[::2], mask[::2]))
    assert found == pytest.approx(with_targets / 2, rel=1e-6)
    assert float(found_l1(states[1::2], embedding, ids[1::2], mask[1::2])) == 0.0


@pytest.mark.parametrize("training", [True, False])
def test_the_auxiliary_layer_adds_lambda_l1_while_training(classifier, parts, training):
    inputs, states, table = parts
    layer = AuxiliaryLanguageModeling(classifier.backbone.token_embedding)
    layer.coefficient = 0.25
    states = keras.ops.cast(states, "float32")
    passed = layer(states, inputs["token_ids"], inputs["padding_mask"], training=training)
    np.testing.assert_array_equal(passed, states)
    expected = [0.25 * np.mean(l1(np.array(states), table, **inputs))] if training else []
    np.testing.assert_allclose(layer.losses, expected, rtol=1e-5)


def test_the_model_counts_the_token_table_once(classifier):
    assert len({id(v) for v in classifier.weights}) == len(classifier.weights)
    head = 32 * 3 + 3
    assert classifier.count_params() == classifier.backbone.count_params() + head


@pytest.mark.parametrize("coefficient", [2.0, 0.0])
def test_a_training_step_reports_l3_and_a_test_step_l2(classifier, parts, coefficient):
    inputs, states, table = parts
    expected_l2 = l2(np.array(classifier(inputs), np.float64), LABELS)
    expected_l1 = np.mean(l1(states, table, **inputs))
    assert expected_l1 > 1.0

    classifier.compile("sgd", lm_coefficient=coefficient, run_eagerly=True)
    assert classifier.test_on_batch(TEXTS, LABELS)[0] == pytest.approx(expected_l2, abs=1e-5)
    classifier.reset_metrics()
    expected = expected_l2 + coefficient * expected_l1
    assert classifier.train_on_batch(TEXTS, LABELS)[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_the_paper_weighs_l1_by_a_half(classifier, parts):
    inputs, states, table = parts
    expected = l2(np.array(classifier(inputs), np.float64), LABELS)
    expected += 0.5 * np.mean(l1(states, table, **inputs))
    history = classifier.fit(TEXTS, LABELS, verbose=0)  # compiled by default, in a graph
    assert history.history["loss"] == [pytest.approx(expected, abs=1e-5)]


def test_training_without_l1_lowers_l2(classifier, parts):
    inputs, _, _ = parts
    optimizer = gpt1_keras.optimizer.GPT1Adam(1e-3)
    classifier.compile(optimizer, lm_coefficient=0, run_eagerly=True)
    losses = []
    for _ in range(5):
        losses.append(l2(np.array(classifier(inputs), np.float64), LABELS))
        classifier.train_on_batch(TEXTS, LABELS)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.05


# Shared prefixes of 3, 1 and 2 tokens; branches of 2, 4 and 3, of 2, and none.
BRANCHES = np.array(
    [
        [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3],
        [0, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1],
        [0, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1],
    ]
)


def test_branches_count_as_if_each_were_a_sequence_of_its_own():
    """The weight of each next token, from the sequences one by one."""
    expected = np.zeros((3, 12))
    for row, branches in enumerate(BRANCHES):
        sequences = [
            [i for i, number in enumerate(branches) if number in (0, branch)]
            for branch in range(1, branches.max() + 1)
        ]
        for indices in sequences:
            for index in indices[:-1]:
                expected[row, index] += 1 / (len(indices) - 1) / len(sequences) / 3
    masks = keras.ops.convert_to_tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]])
    found = branch_weights(keras.ops.cast(BRANCHES, "int32"), masks)
    np.testing.assert_allclose(found, expected[:, :-1], rtol=1e-6)
    assert float(keras.ops.sum(found)) == pytest.approx(2 / 3)  # the third has no sequence


def test_the_loss_of_scores():
    """Tai et al.'s encoding: the two integers beside a score, by how near they are."""
    logits = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
    targets = [
        [0, 0, 0, 0.4, 0.6, 0],
        [1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1],
        [0, 0.75, 0.25, 0, 0, 0],
    ]
    expected = [
        -sum(p * log_probability(row, i) for i, p in enumerate(target))
        for row, target in zip(logits, targets)
    ]
    loss = SoftLabelCrossEntropy((0, 5), reduction=None)
    np.testing.assert_allclose(loss([3.6, 0.0, 5.0, 1.25], logits), expected, rtol=1e-5)
    again = SoftLabelCrossEntropy.from_config(loss.get_config())
    np.testing.assert_allclose(again([3.6, 0.0, 5.0, 1.25], logits), expected, rtol=1e-5)

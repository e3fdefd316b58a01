"""Continuations: which rows are computed at each step, and how tokens are chosen."""

import numpy as np
import pytest
import tensorflow as tf
import torch
from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

import gpt1_keras
from serving.export.decoder.cached_decoder import CachedDecoder
from serving.export.generation import continuations, sample_tokens

CONTEXT, VOCABULARY = 40, 11


class NotingDecoder(CachedDecoder):
    """Notes the texts and columns of each step."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.steps = []

    def step(self, token_ids, positions, cache, starts, window, index):
        columns = cache[0][0].shape[2] + index + 1
        assert int(tf.reduce_max(positions)) < columns <= CONTEXT
        self.steps.append((len(token_ids), int(columns)))
        return super().step(token_ids, positions, cache, starts, window, index)


def test_a_text_that_has_its_tokens_is_no_longer_computed():
    backbone = gpt1_keras.GPT1Backbone(VOCABULARY, 1, 1, 4, 4, max_sequence_length=CONTEXT)
    decoder = NotingDecoder(backbone, [16, CONTEXT])
    prompts = tf.random.stateless_uniform([4, CONTEXT], [1, 2], 0, VOCABULARY, tf.int32)
    kept, length = [38, 3, 10, 1], [2, 20, 1, 5]
    zeros = tf.zeros([4], tf.int32)
    logits = lambda states: backbone.token_embedding(states, reverse=True)  # noqa: E731
    found = continuations(
        *(decoder, logits, prompts, tf.constant(kept), tf.constant(length)),
        *(tf.ones([4]), zeros, tf.ones([4]), tf.range(4)),
    )
    # The first token of each takes no step. The longest prompt's columns leave with it.
    texts = [3] + [2] * 3 + [1] * 15
    columns = [39] + [3 + step for step in range(2, 20)]
    assert decoder.steps == list(zip(texts, columns))
    assert found.shape == (4, CONTEXT)
    for row, count in zip(found.numpy(), length):
        assert not row[count:].any()


def test_all_tokens_are_sampled_by_their_probabilities():
    """Whatever else is chosen beside it: from the likeliest, or the likeliest alone."""
    logits = np.random.default_rng(0).normal(0.0, 2.0, VOCABULARY).astype(np.float32)
    logits[[2, 7]] = -np.inf
    count = 2000
    uniform = tf.random.stateless_uniform([count], [1, 2])
    uniform = tf.concat([uniform, [0.0, 1.0 - 2.0**-23]], axis=0)
    rows = tf.constant(np.tile(logits, (count + 2, 1)))
    temperature = tf.fill([count + 2], 2.0)
    from_all = tf.zeros([count + 2], tf.int32)
    all_of_it = tf.ones([count + 2])
    found = sample_tokens(rows, uniform, temperature, from_all, all_of_it).numpy()
    expected = np.exp(logits / 2.0) / np.exp(logits / 2.0).sum()
    shares = np.bincount(found, minlength=VOCABULARY) / len(found)
    assert shares[2] == shares[7] == 0.0
    np.testing.assert_allclose(shares, expected, atol=5 * np.sqrt(0.25 / count))
    mixed = sample_tokens(
        rows,
        uniform,
        tf.where(tf.range(count + 2) % 3 == 0, 0.0, 2.0),
        tf.where(tf.range(count + 2) % 3 == 1, 4, 0),
        all_of_it,
    ).numpy()
    assert (mixed[::3] == logits.argmax()).all()
    assert set(mixed[1::3]) == set(np.argsort(-logits)[:4])
    assert (mixed[2::3] == found[2::3]).all()


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1e-30])
def test_temperatures_next_to_zero(temperature):
    logits = tf.constant([[0.0, 3.0, 2.9]])
    for top_k in 0, 2, 3:
        found = sample_tokens(
            *(logits, tf.constant([0.9]), tf.constant([temperature]), tf.constant([top_k])),
            tf.constant([1.0]),
        )
        assert found.numpy().tolist() == [1]


@pytest.mark.parametrize("top_k", [0, 3, 9])
@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.6, 0.9, 0.999, 1.0])
def test_a_nucleus_is_the_one_that_hugging_face_keeps(top_k, top_p):
    logits = np.random.default_rng(1).normal(0.0, 2.0, [1, VOCABULARY]).astype(np.float32)
    kept = torch.tensor(logits) / 0.7
    if top_k:
        kept = TopKLogitsWarper(top_k)(None, kept)
    kept = TopPLogitsWarper(top_p)(None, kept) if top_p < 1.0 else kept
    shares = torch.softmax(kept, dim=-1)[0].numpy()
    count = 3000
    found = sample_tokens(
        tf.constant(np.tile(logits, (count, 1))),
        (tf.range(count, dtype=tf.float32) + 0.5) / count,
        tf.fill([count], 0.7),
        tf.fill([count], top_k),
        tf.fill([count], top_p),
    ).numpy()
    found = np.bincount(found, minlength=VOCABULARY) / count
    assert (found[shares == 0.0] == 0.0).all()
    np.testing.assert_allclose(found, shares, atol=2 / count)

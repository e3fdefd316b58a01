"""Packed rows: states equal torch's and Keras's, and padding is not computed."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import OpenAIGPTModel

import gpt1_keras
from gpt1_keras.models.transformer_block import TransformerBlock
from serving.export.decoder.packed_attention import Packing, _pack, first_with_prefix
from serving.export.decoder.packed_decoder import PackedDecoder, packed_outputs

CONTEXT = 40
BUCKETS = [16, 24, 32, CONTEXT]
LENGTHS = [1, CONTEXT, 3, 16, 17, 39, 5, 16, 17, 17]


@pytest.fixture(scope="module")
def backbone():
    """Its embeddings are small, so that epsilon counts in the first layer normalisation."""
    keras.utils.set_random_seed(0)
    made = gpt1_keras.GPT1Backbone(50, 2, 2, 32, 128, max_sequence_length=CONTEXT)
    random = np.random.default_rng(0)
    for block in made.blocks:
        for weight in block.weights:
            weight.assign(weight + random.normal(0.0, 0.2, weight.shape))
    return made


@pytest.fixture(scope="module")
def sequences():
    """Ids in rows, some of which begin alike or are the same, and their lengths."""
    ids = np.random.default_rng(1).integers(0, 50, (len(LENGTHS), CONTEXT)).astype(np.int32)
    ids[5, :20], ids[2], ids[8], ids[9, :9] = ids[1, :20], ids[5], ids[4], ids[4, :9]
    return ids, np.array(LENGTHS, np.int32)


@pytest.fixture(scope="module")
def states_at(backbone):
    decoder = PackedDecoder(backbone, BUCKETS)
    ids = tf.TensorSpec([None, None], tf.int32)
    return tf.function(decoder.states_at, input_signature=[ids] * 2, autograph=False)


class CountingBlock:
    """Notes the rows of each product."""

    def __init__(self, block, row_sizes=None):
        self.block, self.num_heads = block, block.num_heads
        self.row_sizes, self.rows = row_sizes, []

    def project(self, x, positions):
        assert len(positions) == len(x)
        self.rows.append(len(x))
        return self.block.project(x, positions)

    def finish(self, attended, x):
        self.rows.append(len(x))
        return self.block.finish(attended, x)


def distinct_prefixes(ids, lengths):
    return len({tuple(row[:end]) for row, n in zip(ids, lengths) for end in range(1, n + 1)})


def test_the_states_are_torchs(backbone, sequences, states_at, tmp_path):
    ids, lengths = sequences
    backbone.export_to_transformers(tmp_path)
    model = OpenAIGPTModel.from_pretrained(tmp_path).eval()
    found = states_at(ids, lengths[:, None] - 1)
    for row, length, state in zip(ids, lengths, found):
        with torch.no_grad():
            expected = model(torch.tensor(row[None, :length])).last_hidden_state[0, -1]
        np.testing.assert_allclose(state[0], expected, atol=1e-5, rtol=0)


def test_several_tokens_of_a_sequence(backbone, sequences, states_at):
    ids, lengths = sequences
    indices = np.stack([lengths - 1, lengths // 2, np.zeros_like(lengths)], axis=1)
    expected = np.array(backbone.states_at(ids, indices))
    np.testing.assert_allclose(states_at(ids, indices), expected, atol=1e-5, rtol=0)


def test_a_batch_of_any_size(backbone, sequences, states_at):
    ids, lengths = sequences
    assert states_at(ids[:0], lengths[:0, None]).shape == (0, 1, 32)
    for row in 0, 1, 4:
        one, last = ids[row : row + 1], lengths[row : row + 1, None] - 1
        expected = np.array(backbone.states_at(one, last))
        np.testing.assert_allclose(states_at(one, last), expected, atol=1e-5, rtol=0)


def test_sequences_beyond_the_last_bucket(backbone, sequences):
    """As those of several choices may be."""
    ids, lengths = sequences
    decoder = PackedDecoder(backbone, BUCKETS[:2])
    expected = np.array(backbone.states_at(ids, lengths[:, None] - 1))
    found = decoder.states_at(tf.constant(ids), tf.constant(lengths[:, None] - 1))
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def test_one_sequence_is_packed_like_several(sequences):
    """Which the graph does in a branch of its own, sooner."""
    ids, lengths = (tf.constant(each[1:2]) for each in sequences)
    arguments = [ids], lengths, BUCKETS
    for one, packed in zip(Packing.of(*arguments), _pack(*arguments)):
        np.testing.assert_array_equal(one, packed)


@pytest.mark.parametrize("most", [1, 2 * CONTEXT**2])
def test_groups_are_bounded(backbone, sequences, monkeypatch, most):
    """Attention's memory does not grow with the number of sequences."""
    ids, lengths = sequences
    monkeypatch.setattr("serving.export.decoder.packed_attention._MAX_PAIRS", most)
    packing = Packing.of([tf.constant(ids)], tf.constant(lengths), BUCKETS)
    groups = [packing.rows_of(group).shape for group in range(packing.num_groups)]
    assert all(rows == 1 or rows * length**2 <= most for rows, length in groups)
    assert sum(rows for rows, _ in groups) == len(ids)
    expected = np.array(backbone.states_at(ids, lengths[:, None] - 1))
    found = PackedDecoder(backbone, BUCKETS).states_at(
        tf.constant(ids), tf.constant(lengths[:, None] - 1)
    )
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


# Two examples of the same tokens, but for a branch, a position or their end.
PREFIX = {"positions": [0, 1, 2, 3, 4], "branches": [0] * 5}
STORIES = [
    {"positions": [5, 6, 7, 5, 6, 7, 8], "branches": [1, 1, 1, 2, 2, 2, 2]},
    {"positions": [5, 6, 7, 5, 6, 7, 8], "branches": [1, 1, 1, 1, 2, 2, 2]},
    {"positions": [5, 6, 7, 8, 9, 7, 8], "branches": [1, 1, 1, 2, 2, 2, 2]},
    {"positions": [5, 6, 7, 5, 6, 7, -1], "branches": [1, 1, 1, 2, 2, 2, -1]},
]
ENDS = [[7, 11, -1], [8, 11, -1], [7, 11, 9], [7, 10, -1]]


def test_branches_after_a_shared_prefix(backbone, sequences):
    columns = {
        name: np.maximum([PREFIX[name] + story[name] for story in STORIES], floor).astype(np.int32)
        for name, floor in (("positions", 0), ("branches", -1))
    }
    ids = np.repeat(sequences[0][1:2, :12], len(STORIES), axis=0)
    ends = np.array(ENDS, np.int32)
    arguments = [ids, ends, columns["positions"], columns["branches"]]
    expected = np.array(backbone.states_at(*arguments))
    blocks = [CountingBlock(block) for block in backbone.blocks]
    decoder = PackedDecoder(backbone, BUCKETS, blocks)
    found = decoder.states_at(*map(tf.constant, arguments)).numpy()
    np.testing.assert_allclose(found[ends >= 0], expected[ends >= 0], atol=1e-5, rtol=0)
    # Of 12 + 12 + 12 + 11 tokens, 8, 8 and 11 come after the same as in another story.
    assert blocks[0].rows[0] == 47 - 8 - 8 - 11
    for row in range(len(STORIES)):
        alone = decoder.states_at(*(tf.constant(each[row : row + 1]) for each in arguments))
        is_asked = ends[row] >= 0
        np.testing.assert_allclose(alone[0][is_asked], expected[row, is_asked], atol=1e-5, rtol=0)


def test_only_what_is_needed_is_computed(backbone, sequences):
    ids, lengths = sequences
    blocks = [CountingBlock(block) for block in backbone.blocks]
    decoder = PackedDecoder(backbone, BUCKETS, blocks)
    decoder.states_at(tf.constant(ids), tf.constant(lengths[:, None] - 1))
    rows = distinct_prefixes(ids, lengths)
    assert rows < sum(lengths)
    assert [block.rows for block in blocks] == [[rows, rows], [rows, len(ids)]]


@pytest.mark.parametrize("count", [0, 1, len(LENGTHS)])
def test_rows_are_padded_to_a_blocks_sizes(backbone, sequences, count):
    ids, lengths = (each[:count] for each in sequences)
    sizes = [8, 32, 64]
    blocks = [CountingBlock(block, sizes) for block in backbone.blocks]
    decoder = PackedDecoder(backbone, BUCKETS, blocks)
    found = decoder.states_at(tf.constant(ids), tf.constant(lengths[:, None] - 1))
    expected = PackedDecoder(backbone, BUCKETS).states_at(
        tf.constant(ids), tf.constant(lengths[:, None] - 1)
    )
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    rows = {0: 8, 1: 8, len(LENGTHS): 128}[count]  # beyond the last, its multiples
    asked = 32 if count > 8 else 8
    assert [block.rows for block in blocks] == [[rows, rows], [rows, asked]]


def test_lora_is_added(sequences):
    keras.utils.set_random_seed(0)
    backbone = gpt1_keras.GPT1Backbone(50, 2, 2, 32, 128, max_sequence_length=CONTEXT)
    ids, lengths = sequences
    before = np.array(backbone.states_at(ids, lengths[:, None] - 1))
    backbone.enable_lora(2)
    for weight in backbone.trainable_weights:
        weight.assign(weight + keras.random.normal(weight.shape, stddev=0.3))
    expected = np.array(backbone.states_at(ids, lengths[:, None] - 1))
    assert np.abs(expected - before).max() > 0.1
    found = PackedDecoder(backbone, BUCKETS).states_at(
        tf.constant(ids), tf.constant(lengths[:, None] - 1)
    )
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_what_only_keras_computes(tiny_tokenizer):
    def classifier(backbone, task_cls=gpt1_keras.GPT1TextClassifier):
        preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
        return task_cls(backbone, 2, preprocessor=preprocessor)

    class OtherBackbone(gpt1_keras.GPT1Backbone):
        def call(self, *args, **kwargs):
            return super().call(*args, **kwargs)

    class OtherBlock(TransformerBlock):
        def call(self, x, attention=None, training=None):
            return super().call(x, attention, training)

    class BackboneOfOtherBlocks(gpt1_keras.GPT1Backbone):
        block_cls = OtherBlock

    class OtherTask(gpt1_keras.GPT1TextClassifier):
        def predict_outputs(self, inputs):
            return super().predict_outputs(inputs)

    size = (tiny_tokenizer.vocabulary_size(), 1, 2, 16, 32, 0.1, 24)
    model = classifier(gpt1_keras.GPT1Backbone(*size))
    assert packed_outputs(model, BUCKETS)
    assert not packed_outputs(classifier(OtherBackbone(*size)), BUCKETS)
    assert not packed_outputs(classifier(BackboneOfOtherBlocks(*size)), BUCKETS)
    assert not packed_outputs(classifier(model.backbone, OtherTask), BUCKETS)
    lstm = gpt1_keras.LSTMBackbone(size[0], 16, 16, max_sequence_length=24)
    assert not packed_outputs(classifier(lstm), BUCKETS)
    model.quantize("int8")
    assert not packed_outputs(model, BUCKETS)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5), max_size=6))
def test_owners_are_the_first_with_the_same_prefix(sequences):
    length = max(map(len, sequences), default=0)
    ids = np.zeros((len(sequences), length, 1), np.int32)  # padding looks like a token
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence), 0] = sequence
    lengths = np.array([len(sequence) for sequence in sequences], np.int32)
    owners = first_with_prefix(tf.constant(ids), tf.constant(lengths)).numpy()
    assert owners[-1].tolist() == list(range(len(sequences)))
    for row, sequence in enumerate(sequences):
        for column in range(len(sequence)):
            prefixes = [other[: column + 1] for other in sequences]
            found = owners[min(column, len(owners) - 1), row]
            assert found == prefixes.index(sequence[: column + 1])

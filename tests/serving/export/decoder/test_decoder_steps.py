"""The states of all tokens, and of one more token per text, equal those of Keras's model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from gpt1_keras.models.transformer_block import TransformerBlock
from serving.export.decoder.packed_decoder import CachedDecoder

CONTEXT = 24
LENGTHS = np.array([5, 12, 1, 5, 12], np.int32)


class PaddedBlock:
    """Takes some numbers of rows only, as those of 8 bits do."""

    row_sizes = (4, 16)

    def __init__(self, block):
        self.block, self.num_heads = block, block.num_heads

    def project(self, x, positions):
        return self.block.project(x, positions)

    def finish(self, attended, x):
        return self.block.finish(attended, x)


@pytest.fixture(scope="module")
def given():
    keras.utils.set_random_seed(0)
    made = gpt1_keras.GPT1Backbone(50, 2, 2, 16, 64, max_sequence_length=CONTEXT)
    random = np.random.default_rng(0)
    for weight in made.weights:
        if weight.dtype == "float32":
            weight.assign(weight + random.normal(0.0, 0.2, weight.shape))
    return made


@pytest.fixture(scope="module")
def token_ids():
    ids = np.random.default_rng(1).integers(0, 50, (len(LENGTHS), CONTEXT), "int32")
    ids[3, :5], ids[4, :12] = ids[0, :5], ids[1, :12]
    return ids


@pytest.mark.parametrize(
    "block_cls", [PaddedBlock, pytest.param(TransformerBlock, marks=pytest.mark.slow)]
)
def test_the_states_are_keras(given, token_ids, block_cls):
    """Of texts that are continued from their ends on."""
    backbone = gpt1_keras.GPT1Backbone.from_config(given.get_config())
    backbone.set_weights(given.get_weights())
    blocks = [PaddedBlock(block) for block in backbone.blocks]
    if block_cls is TransformerBlock:
        # Weights alone: a rounded activation may turn a last digit into a step between integers.
        weights = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
        backbone.quantize("int8", weights)
        blocks = None
    decoder = CachedDecoder(backbone, [16, 24], blocks)

    @tf.function(autograph=False)
    def run(ids):
        states = decoder.states(ids, LENGTHS)
        last, cache = decoder.read(ids, LENGTHS)
        starts, found = tf.constant(12 - LENGTHS), [last]
        window = [tuple(tf.zeros([5, 2, 3, 8]) for _ in range(2)) for _ in range(2)]
        for index in range(3):
            positions = LENGTHS + index
            tokens = tf.gather(ids, positions, batch_dims=1)
            last, window = decoder.step(tokens, positions, cache, starts, window, index)
            found.append(last)
        return states, tf.stack(found, axis=1)

    expected = np.array(backbone({"token_ids": token_ids}))
    states, found = run(tf.constant(token_ids))
    is_token = np.arange(CONTEXT) < LENGTHS[:, None]
    np.testing.assert_allclose(states, expected[is_token], atol=1e-5, rtol=0)
    for row, length in enumerate(LENGTHS):
        wanted = expected[row, length - 1 : length + 3]
        np.testing.assert_allclose(found[row], wanted, atol=1e-5, rtol=0)

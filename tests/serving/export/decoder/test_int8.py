"""8-bit products equal integer products; a block with them is near the float block."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from serving.export.decoder import int8
from serving.export.decoder.int8 import ExactProducts, Int8Block, Int8Linear, Range, RangeRecorder
from serving.export.decoder.packed_decoder import CachedDecoder
from serving.server.errors import ServingError
from serving.server.models.loading import Loader

pytestmark = pytest.mark.usefixtures("int8_products")

HIDDEN, WIDE = 64, 128


def in_graph(function, *arrays):
    """What a function of tensors returns in a graph, as the op of 8-bit products needs one."""
    run = tf.function(function, autograph=False, jit_compile=False)
    return tf.nest.map_structure(np.array, run(*map(tf.constant, arrays)))


def quantized(x, range):
    """The whole numbers that stand for x, by numpy."""
    return np.clip(np.round(x / np.float32(range.scale)) + range.zero_point, 0, 255)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("limits", [(-3.0, 7.0), (-4.0, 4.0), (0.0, 1.0), (-2.0, -1.0)])
def test_range(limits):
    range = Range.covering(*limits)
    random = np.random.default_rng(0).uniform(-5.0, 8.0, 500)
    x = np.array([0.0, *limits, -100.0, 100.0, *random], np.float32)
    found = in_graph(lambda x: tf.bitcast(range.quantize(x), tf.uint8), x)
    differences = np.abs(found - quantized(x, range))
    assert differences.max() <= 1 and differences.mean() < 0.01  # where it is halfway
    found = found[:5]
    back = range.scale * (found.astype(float) - range.zero_point)
    assert back[0] == 0.0
    np.testing.assert_allclose(back[1:3], limits, atol=range.scale)  # half a step, and the end's
    np.testing.assert_allclose(back[3:], [range.least, range.greatest], atol=1e-6)


def test_products_are_those_of_integers():
    random = np.random.default_rng(0)
    kernel = random.normal(size=(HIDDEN, WIDE)).astype("float32")
    kernel[:, 0] = 0.0  # a column that has no scale
    bias, addend = (random.normal(size=shape).astype("float32") for shape in (WIDE, (9, WIDE)))
    range = Range.covering(-3.0, 5.0)
    output_range = Range.covering(-0.2, 30.0)
    linear = Int8Linear(kernel, bias, range)
    x = random.uniform(-4.0, 6.0, (9, HIDDEN)).astype("float32")

    def compute(x, addend):
        x = range.quantize(x)
        hidden = tf.bitcast(linear.gelu(x, output_range), tf.uint8)
        half = tf.cast(addend, tf.bfloat16)
        return linear(x), linear(x, addend=addend), half, linear(x, addend=half), hidden

    plain, added, half, added_half, hidden = in_graph(compute, x, addend)
    neighbours = np.abs(kernel[0::2] + kernel[1::2])
    scales = np.maximum(np.concatenate([np.abs(kernel), neighbours]).max(axis=0), 1e-30) / 127
    integers = (quantized(x, range) - range.zero_point) @ np.round(kernel / scales)
    expected = integers * scales * range.scale + bias
    np.testing.assert_allclose(plain, expected, atol=1e-4)
    np.testing.assert_allclose(added, expected + addend, atol=1e-4)
    np.testing.assert_allclose(added_half, expected + half.astype(float), atol=1e-4)
    # What is halfway between two whole numbers may become either.
    assert np.abs(hidden - quantized(gelu(expected), output_range)).max() <= 1


@pytest.fixture(scope="module")
def backbone():
    """A backbone whose channels and units differ as those of trained models do."""
    keras.utils.set_random_seed(0)
    made = gpt1_keras.GPT1Backbone(50, 2, 2, HIDDEN, WIDE, max_sequence_length=24)
    random = np.random.default_rng(0)
    for weight in made.weights:
        if weight.name in ("gamma", "bias", "beta"):
            weight.assign(weight + random.normal(0.0, 0.2, weight.shape))
    for block in made.blocks:
        block.attention_norm.gamma.assign(block.attention_norm.gamma * ([8.0] + [1.0] * 63))
        block.feedforward_norm.beta.assign(block.feedforward_norm.beta - ([5.0] + [0.0] * 63))
        block.expand.bias.assign(block.expand.bias + ([60.0] + [0.0] * (WIDE - 1)))
    return made


def states_of(backbone, blocks=None):
    """A function from ids `[batch, length]` to the states of all, `[batch, length, hidden_dim]`."""
    decoder = CachedDecoder(backbone, [24], blocks)

    def states(token_ids):
        batch, length = token_ids.shape
        found = decoder.states(token_ids, tf.fill([batch], length))
        return tf.reshape(found, [batch, length, HIDDEN])

    return states


@pytest.fixture(scope="module")
def calibrated(backbone):
    """Both blocks in 8 bits, calibrated on random tokens."""
    recorder = RangeRecorder(backbone.blocks)
    with recorder.recording():
        in_graph(states_of(backbone), np.random.default_rng(1).integers(0, 50, (8, 24), "i"))
    return [Int8Block(*each) for each in zip(backbone.blocks, recorder.ranges())]


def test_a_block_is_nearly_the_float_one(backbone, calibrated):
    token_ids = np.random.default_rng(2).integers(0, 50, (5, 20), "int32")
    found = in_graph(states_of(backbone, calibrated), token_ids)
    expected = np.array(backbone({"token_ids": token_ids}))
    error = np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2))
    # Steps of 1/255 of a range that is some standard deviations wide, rounded four times a block.
    assert 0.0 < error < 0.012


def test_a_unit_that_reaches_far_is_split():
    """Else its range would leave the others few steps. GELU of its parts adds up to its own."""
    greatest = np.array([3.0] * 126 + [9.0, -0.1])
    limit, units, offsets = int8._split(greatest)
    assert limit == pytest.approx(3.0, rel=0.02) and len(units) == 130
    x = np.linspace(-4.0, 9.0, 500)
    parts = [np.minimum(gelu(x - offset), limit) for offset in offsets[units == 126]]
    assert len(parts) == 3
    np.testing.assert_allclose(sum(parts), gelu(x), atol=0.25)  # GELU's own least is -0.17
    assert not offsets[units != 126].any()


def test_units_that_reach_about_as_far_are_not_split():
    limit, units, offsets = int8._split(np.linspace(0.1, 3.0, 128))
    assert limit == 3.0 and units.tolist() == list(range(128)) and not offsets.any()


def test_only_the_matrices_of_a_block_are_replaced(backbone, calibrated):
    kept = {id(weight) for weight in backbone.blocks[0].weights}
    kept -= {id(weight) for weight in calibrated[0].replaced}
    assert {weight.name for weight in backbone.blocks[0].weights if id(weight) in kept} <= {
        *("gamma", "beta", "seed_generator_state"),
    }


def test_texts_that_show_no_ranges(backbone):
    with pytest.raises(ValueError, match="no ranges of activations: expected finite numbers"):
        RangeRecorder(backbone.blocks).ranges()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "column",
    [
        np.ones(HIDDEN),
        np.tile([1.0, 0.0, 0.0, 1.0], HIDDEN // 4),
        np.tile([1.0, 0.9, -1.0, 0.3], HIDDEN // 4),
        np.random.default_rng(0).normal(size=HIDDEN + 1),  # the last has no neighbour
    ],
    ids=["equal", "apart", "near", "odd"],
)
def test_neighbours_fit_into_16_bits(column, sign):
    """Without VNNI, processors add the products of two neighbours in a column in 16 bits."""
    linear = Int8Linear(sign * column[:, np.newaxis], np.zeros(1), Range(1.0, 0))
    weights = np.append(linear.variables[0].numpy().astype(int), [0] * (len(column) % 2))
    assert 64 <= np.abs(weights).max() <= 127
    for part in (weights.clip(0), weights.clip(None, 0)):
        assert np.abs(255 * part.reshape(-1, 2).sum(axis=1)).max() < 2**15


def test_where_products_are_not_exact(monkeypatch, tmp_path):
    int8.check_this_machine()
    inexact = Int8Linear(np.ones((64, 64)), np.ones(64), Range(1.0, 0))
    monkeypatch.setattr(int8, "_largest_product", lambda: inexact)
    with pytest.raises(ValueError, match="those of this machine are missing or not exact"):
        int8.check_this_machine()
    module = tf.Module()
    module.exact_products = ExactProducts()
    tf.saved_model.save(module, str(tmp_path))
    with pytest.raises(ServingError, match="not multiplied exactly"):
        Loader().load(tmp_path)

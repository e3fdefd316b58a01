"""Tokens that a padding mask leaves out change nothing."""

import keras
import numpy as np
import pytest
from keras import ops

import gpt1_keras
from gpt1_keras.models.lstm_backbone import LSTMBackbone

TOKENS = np.array([[5, 3, 8, 2], [7, 7, 1, 9]])
# Where the four tokens of each text stand in eight places.
PLACES = {
    "right": [[0, 1, 2, 3], [0, 1, 2, 3]],
    "left": [[4, 5, 6, 7], [4, 5, 6, 7]],
    "holes": [[0, 2, 3, 7], [1, 4, 5, 6]],
}


@pytest.fixture(scope="module", params=["gpt1", "lstm"])
def backbone(request):
    if request.param == "lstm":
        return LSTMBackbone(20, hidden_dim=16, units=8)
    return gpt1_keras.GPT1Backbone(20, 2, 2, 16, 32, max_sequence_length=8)


def spread(places):
    """The tokens at their places, with other tokens in the padding; and their mask."""
    token_ids, mask = np.full((2, 8), 4), np.zeros((2, 8), "int32")
    np.put_along_axis(token_ids, np.array(places), TOKENS, axis=1)
    np.put_along_axis(mask, np.array(places), 1, axis=1)
    return {"token_ids": token_ids, "padding_mask": mask}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_states_are_those_without_padding(backbone, places):
    expected = ops.convert_to_numpy(backbone({"token_ids": TOKENS}))
    states = ops.convert_to_numpy(backbone(spread(places)))
    found = np.take_along_axis(states, np.array(places)[:, :, None], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_order_of_a_dict_means_nothing(backbone):
    inputs = spread(PLACES["left"])
    turned = dict(reversed(inputs.items()))
    np.testing.assert_array_equal(
        ops.convert_to_numpy(backbone(inputs)), ops.convert_to_numpy(backbone(turned))
    )


@pytest.mark.parametrize(
    "inputs",
    [
        {"token_ids": TOKENS, "attention_mask": np.ones_like(TOKENS)},
        {"token_ids": TOKENS, "padding_mask": np.ones_like(TOKENS), "segment_ids": TOKENS},
        {"padding_mask": TOKENS},
        TOKENS,
        [TOKENS, np.ones_like(TOKENS)],
    ],
)
def test_other_inputs_are_refused(backbone, inputs):
    with pytest.raises(ValueError, match="'token_ids', 'padding_mask'"):
        backbone(inputs)


def test_gradients_follow_the_tokens(backbone):
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("gradients by tf.GradientTape")

    def gradients(inputs, mask):
        with tf.GradientTape() as tape:
            loss = ops.sum(ops.square(backbone(inputs)) * mask[:, :, None])
        return tape.gradient(loss, backbone.trainable_variables)

    expected = gradients({"token_ids": TOKENS}, np.ones_like(TOKENS, "float32"))
    inputs = spread(PLACES["holes"])
    for found, value in zip(gradients(inputs, inputs["padding_mask"].astype("float32")), expected):
        np.testing.assert_allclose(
            tf.convert_to_tensor(found), tf.convert_to_tensor(value), atol=1e-4
        )

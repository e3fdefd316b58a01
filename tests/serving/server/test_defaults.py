"""Inputs that have a default may be left out, as TensorFlow Serving's predict_util.cc has it."""

import numpy as np
import pytest
import tensorflow as tf

from serving.server.errors import ServingError
from serving.server.models.servable import Servable
from serving.server.rest_service import read_inputs

TWO, NONE = tf.constant([2]), tf.constant([[""]])


@tf.function(
    input_signature=[
        tf.TensorSpec([None], tf.string, "text"),
        tf.TensorSpec([None], tf.int32, "count"),
        tf.TensorSpec([None, None], tf.string, "more"),
    ]
)
def repeat(text, count=TWO, more=NONE):
    more = tf.broadcast_to(tf.strings.reduce_join(more, axis=1), tf.shape(text))
    count = tf.broadcast_to(count, tf.shape(text))
    return {"text": text + more, "count": count}


@pytest.fixture(scope="module")
def servable(tmp_path_factory):
    path = tmp_path_factory.mktemp("defaults")
    tf.saved_model.save(tf.Module(), str(path), signatures={"serving_default": repeat})
    return Servable("defaults", 1, path)


@pytest.mark.parametrize(
    ("document", "text", "count"),
    [
        ({"inputs": {"text": ["a", "b"]}}, ["a", "b"], [2, 2]),
        ({"inputs": {"text": ["a"], "count": [5]}}, ["a"], [5]),
        ({"inputs": {"text": ["a"], "more": [["b", "c"]], "other": 1}}, ["abc"], [2]),
        ({"instances": [{"text": "a"}, {"text": "b"}]}, ["a", "b"], [2, 2]),
        ({"instances": [{"text": "a", "count": 3, "more": ["b"]}]}, ["ab"], [3]),
    ],
)
def test_they_are_filled_in(servable, document, text, count):
    inputs = read_inputs(document, servable.signature_defs["serving_default"])
    found = servable.predict("serving_default", inputs)
    assert [each.decode() for each in found["text"]] == text
    assert found["count"].tolist() == count


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"inputs": {"count": [1]}}, "Expected 'inputs' to be an object with the keys {text}; rec"),
        ({"inputs": ["a"]}, "Expected 'inputs' to be an object with the keys {text}; received"),
        ({"instances": [{"count": 1}]}, "objects with the keys {count,more,text}; at 0 received"),
        ({"instances": [{"text": "a"}, {"text": "b", "count": 1}]}, "the keys {text}; at 1 receiv"),
        ({"instances": [{"text": "a", "x": 1}]}, "with the keys {count,more,text}; at 0 received"),
    ],
)
def test_the_others_are_not(servable, document, message):
    with pytest.raises(ServingError) as caught:
        read_inputs(document, servable.signature_defs["serving_default"])
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["count"],
            "Signature input alias: text(feed name: serving_default_text:0) not found in request "
            "and no default value provided. Inputs expected to be in the request {count}, or "
            "default input alias set: count,more",
        ),
        (
            ["text", "x"],
            "Inputs contains invalid name. Used request inputs: text, request input: text,x",
        ),
        (
            ["count", "more", "text", "x"],
            "input size does not match signature: 4!=3 len({count,more,text,x}) != "
            "len({count,more,text}). Sent extra: {x}. Missing but required: {}.",
        ),
    ],
)
def test_names_that_do_not_fit(servable, names, message):
    protos = {name: tf.make_tensor_proto(np.array(["a"])) for name in names}
    with pytest.raises(ServingError) as caught:
        servable.predict("serving_default", protos)
    assert caught.value.message == message

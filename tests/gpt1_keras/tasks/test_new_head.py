"""A task with its own head, defined outside the package: any number of tags for each text."""

import json

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from gpt1_keras.presets import load_task
from gpt1_keras.tasks.heads import ExtractHead, last_token_index, sequence_inputs
from gpt1_keras.tasks.task import Task

TAGS = ["about films", "about staff", "kind"]
TEXTS = ["a good film", "the staff", "the staff were kind", "a kind film"]
LABELS = ["about films", "about staff", "about staff,kind", "about films,kind"]
EXPECTED = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1], [1, 0, 1]])


class TagHead(ExtractHead):
    """One logit per tag; labels are tags separated by commas, string `[batch]`."""

    def __init__(self, tags, dropout, dtype):
        super().__init__(len(tags), dropout, dtype)
        self.tags = tags

    def encode_labels(self, labels):
        given = tf.strings.split(labels, ",").to_tensor("")
        return tf.reduce_any(given[:, :, tf.newaxis] == tf.constant(self.tags), axis=1)

    def predictions(self, outputs):
        return outputs > 0.0

    def default_loss(self):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def default_metrics(self):
        return [keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")]

    def get_config(self):
        return {**super().get_config(), "tags": self.tags}


@keras.saving.register_keras_serializable(package="test_new_head")
class Tagger(Task, keras_hub.models.Task):
    backbone_cls = gpt1_keras.GPT1Backbone
    preprocessor_cls = gpt1_keras.GPT1TextClassifierPreprocessor
    label_arguments = ("tags",)

    def __init__(self, backbone, tags, preprocessor=None, dropout=0.1, **kwargs):
        head = TagHead(tags, dropout, backbone.dtype_policy)
        self.attach(backbone, preprocessor, head)
        inputs = sequence_inputs(None)
        super().__init__(inputs=inputs, outputs=head(self.last_states(**inputs)), **kwargs)

    def predict_outputs(self, inputs):
        last = last_token_index(inputs["padding_mask"])
        states = self.backbone.states_at(inputs["token_ids"], last)
        return self.task_head.outputs(states[:, 0])


@pytest.fixture(scope="module")
def tagger(tiny_tokenizer):
    """A tagger that `fit` on strings has taught the tags."""
    keras.utils.set_random_seed(0)
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    backbone = gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(), max_sequence_length=16, dropout=0.0, **sizes
    )
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    tagger = Tagger(backbone, TAGS, preprocessor, dropout=0.0)
    tagger.compile(keras.optimizers.Adam(2e-2), jit_compile=False)
    tagger.fit(TEXTS * 40, LABELS * 40, batch_size=4, shuffle=False, verbose=0)
    return tagger


@pytest.mark.slow
def test_it_learns_from_strings(tagger):
    np.testing.assert_array_equal(tagger.predict(TEXTS, verbose=0), EXPECTED)
    assert tagger.evaluate(TEXTS, LABELS, verbose=0)[1] == 1.0


def test_inference_on_the_states_it_needs(tagger):
    inputs = tagger.preprocessor(TEXTS)
    expected = tagger(inputs)
    np.testing.assert_allclose(tagger.predict_outputs(inputs), expected, atol=1e-5, rtol=0)


def test_a_preset(tagger, tmp_path):
    tagger.save_to_preset(tmp_path)
    again = load_task(tmp_path)
    assert type(again) is Tagger and again.task_head.tags == TAGS
    again.compile(run_eagerly=True)
    np.testing.assert_array_equal(again.predict(TEXTS, verbose=0), EXPECTED)
    assert "Tagger" in json.loads((tmp_path / "metadata.json").read_text())["tasks"]


def test_other_labels_ask_for_a_fresh_head(tagger, tmp_path):
    tagger.save_to_preset(tmp_path)
    fresh = Tagger.from_preset(str(tmp_path), tags=["good", "bad"])
    assert fresh.head.units == 2 and not np.any(np.array(fresh.head.bias))
    for found, kept in zip(fresh.backbone.get_weights(), tagger.backbone.get_weights()):
        np.testing.assert_array_equal(found, kept)

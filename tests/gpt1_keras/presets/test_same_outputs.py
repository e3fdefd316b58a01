"""What is saved in any format and loaded again gives the outputs that it had."""

import json

import hypothesis
import keras
import numpy as np
import pytest
from hypothesis import strategies as st

import gpt1_keras
from gpt1_keras.presets import load_task
from tests.helpers.fuzzing import search

TEXTS = ["a good film, and a lovely one", "the staff were kind"]
MODES = [None, "int8", "int4", "float8"]


def make(tokenizer, task, backbone, mode, **sizes):
    """A task of random weights, which may be quantized."""
    cls = gpt1_keras.GPT1Backbone if backbone == "gpt1" else gpt1_keras.LSTMBackbone
    backbone = cls(tokenizer.vocabulary_size(), max_sequence_length=16, **sizes)
    random = np.random.default_rng(0)
    for weight in backbone.weights:
        weight.assign(weight + random.normal(0.0, 0.3, weight.shape))
    if task == "lm":
        preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tokenizer, 16)
        model = gpt1_keras.GPT1CausalLM(backbone, preprocessor)
    else:
        preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer, 16)
        model = gpt1_keras.GPT1TextClassifier(backbone, 2, preprocessor)
    if mode:
        model.quantize(mode)
    return model


def outputs(model, inputs):
    return np.array(model(inputs))


def assert_same_after_loading(model, folder):
    inputs = keras.utils.unpack_x_y_sample_weight(model.preprocessor(TEXTS))[0]
    expected, states = outputs(model, inputs), outputs(model.backbone, inputs)
    model.save_to_preset(folder / "task")
    model.backbone.save_to_preset(folder / "backbone")
    model.save(folder / "a.keras")
    model.save_weights(folder / "a.weights.h5")
    np.testing.assert_array_equal(outputs(load_task(folder / "task"), inputs), expected)
    loaded = keras.saving.load_model(folder / "a.keras")
    np.testing.assert_array_equal(outputs(loaded, inputs), expected)
    loaded.load_weights(folder / "a.weights.h5")
    np.testing.assert_array_equal(outputs(loaded, inputs), expected)
    for name in ("task", "backbone"):
        backbone = type(model.backbone).from_preset(folder / name)
        np.testing.assert_array_equal(outputs(backbone, inputs), states)
        # A fresh head on it.
        fresh = gpt1_keras.GPT1TextClassifier.from_preset(
            folder / name, num_classes=3, preprocessor=None
        )
        np.testing.assert_array_equal(outputs(fresh.backbone, inputs), states)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize("mode", MODES)
def test_language_models(tiny_tokenizer, tmp_path, mode):
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    assert_same_after_loading(make(tiny_tokenizer, "lm", "gpt1", mode, **sizes), tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@search(12)
@hypothesis.given(st.data())
def test_models_of_any_kind(tiny_tokenizer, tmp_path_factory, data):
    task, backbone = (
        data.draw(st.sampled_from(["lm", "classes"])),
        data.draw(st.sampled_from(["gpt1", "lstm"])),
    )
    sizes = {"hidden_dim": 8 * data.draw(st.integers(1, 4))}
    if backbone == "gpt1":
        sizes |= {"num_heads": data.draw(st.sampled_from([1, 2, 4]))}
        sizes |= {"num_layers": data.draw(st.integers(1, 3)), "intermediate_dim": 16}
    else:
        sizes |= {"units": data.draw(st.integers(1, 12))}
    model = make(tiny_tokenizer, task, backbone, data.draw(st.sampled_from(MODES)), **sizes)
    assert_same_after_loading(model, tmp_path_factory.mktemp("saved"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_quantizers_that_a_preset_does_not_keep(tmp_path):
    backbone = gpt1_keras.GPT1Backbone(20, 1, 2, 8, 16)
    backbone.quantize(config=keras.quantizers.Int8QuantizationConfig(activation_quantizer=None))
    with pytest.raises(ValueError, match="activation_quantizer=None"):
        backbone.save_to_preset(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [gpt1_keras.GPT1Backbone, gpt1_keras.LSTMBackbone])
def test_the_metadata_of_a_backbone_names_its_tasks(cls, tmp_path):
    cls(20, hidden_dim=12).save_to_preset(tmp_path)
    tasks = json.loads((tmp_path / "metadata.json").read_text())["tasks"]
    assert {"GPT1CausalLM", "GPT1MultipleChoice", "GPT1TextClassifier"} <= set(tasks)
    assert not {"Task", "CausalLM"} & set(tasks)

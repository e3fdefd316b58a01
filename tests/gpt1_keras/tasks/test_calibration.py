"""Only a task's probabilities use the temperature; the preset keeps it."""

import json

import keras
import numpy as np
import pytest
import scipy.special

import gpt1_keras
from gpt1_keras.presets import load_task
from gpt1_keras.tasks.heads import ABSENT_CHOICE_LOGIT, Calibration
from tests.helpers.eager import eagerly

TEXTS = np.array(["a good film", "a bad and dull one", "kind staff"], object)
CLASSES = ["negative", "neutral", "positive"]


@pytest.fixture(scope="module")
def backbone(tiny_tokenizer):
    keras.utils.set_random_seed(0)
    return gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(), 1, 2, 8, 16, max_sequence_length=16
    )


@pytest.fixture(scope="module")
def make(backbone, tiny_tokenizer):
    """A function that makes a classifier, always of the same weights."""
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, 16)

    def make(**arguments):
        arguments = {"class_names": CLASSES, **arguments}
        model = gpt1_keras.GPT1TextClassifier(backbone, preprocessor=preprocessor, **arguments)
        random = np.random.default_rng(1)
        for weight in model.head.weights:
            weight.assign(random.normal(0.0, 2.0, weight.shape))
        return model

    return make


def predict(model):
    with eagerly():
        return model.predict(TEXTS, verbose=0)


@pytest.fixture(scope="module")
def logits(make):
    return predict(make())


@pytest.mark.slow
@pytest.mark.parametrize("activation", [None, "softmax"])
def test_probabilities(make, logits, activation):
    before, model = make(activation=activation), make(activation=activation, temperature=2.5)
    np.testing.assert_array_equal(predict(model), predict(before))
    found = model.probabilities(predict(model))
    np.testing.assert_allclose(found, scipy.special.softmax(logits / 2.5, axis=1), atol=1e-6)
    np.testing.assert_array_equal(np.argmax(found, axis=1), logits.argmax(axis=1))
    found = before.probabilities(predict(before))
    np.testing.assert_allclose(found, scipy.special.softmax(logits, axis=1), atol=1e-6)


def test_an_absent_choice_has_no_probability(backbone):
    chooser = gpt1_keras.GPT1MultipleChoice(backbone, temperature=10.0)
    found = chooser.probabilities(np.array([[5.0, -5.0, ABSENT_CHOICE_LOGIT]], "float32"))
    np.testing.assert_allclose(found, [[1 / (1 + np.e**-1), 1 / (1 + np.e), 0.0]], atol=1e-6)


@pytest.mark.slow
def test_a_preset_holds_it(make, tmp_path):
    model = make()
    model.calibration = Calibration(1.75, 0.9)
    model.save_to_preset(str(tmp_path))
    loaded = load_task(tmp_path)
    assert loaded.calibration == Calibration(temperature=1.75, sure_threshold=0.9)
    np.testing.assert_allclose(predict(loaded), predict(model), atol=1e-6)
    # That of other classes, or of scores, is not known.
    from_preset = gpt1_keras.GPT1TextClassifier.from_preset
    assert from_preset(tmp_path, class_names=["a", "b"]).calibration == Calibration()
    assert from_preset(tmp_path, score_range=(0, 5)).calibration is None


def test_a_preset_without_one_says_nothing_of_it(make, tmp_path):
    make().save_to_preset(str(tmp_path))
    config = json.loads((tmp_path / "task.json").read_text())["config"]
    assert not {"temperature", "sure_threshold"} & config.keys()

"""Presets that name earlier modules, such as `gpt1_keras.backbone`, load as today's do.

before_the_rooms/ holds the JSON files that the shipped preset had then.
"""

import pathlib
import shutil

import keras
import keras_hub
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.presets import find_preset, load_task, load_tokenizer

NAME = "gpt1_tiny_books"


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """The path of an old preset: old JSON files with the shipped weights and vocabulary."""
    folder = tmp_path_factory.mktemp("preset")
    shutil.copytree(find_preset(NAME), folder, dirs_exist_ok=True)
    shutil.copytree(pathlib.Path(__file__).parent / "before_the_rooms", folder, dirs_exist_ok=True)
    assert '"gpt1_keras.backbone"' in (folder / "config.json").read_text()
    return str(folder)


@pytest.fixture(scope="module")
def lm():
    """What the preset holds, as it is today."""
    return gpt1_keras.GPT1CausalLM.from_preset(NAME)


@pytest.mark.parametrize(
    ("task_cls", "arguments"),
    [
        (gpt1_keras.GPT1CausalLM, {}),
        (gpt1_keras.GPT1TextClassifier, {"num_classes": 3}),
        (gpt1_keras.GPT1TextSimilarity, {"score_range": (1, 5)}),
        (gpt1_keras.GPT1MultipleChoice, {}),
    ],
)
def test_every_task(old, lm, task_cls, arguments):
    task = task_cls.from_preset(old, **arguments)
    assert task.preprocessor.tokenizer.fingerprint == lm.preprocessor.tokenizer.fingerprint
    config, expected = task.backbone.get_config(), lm.backbone.get_config()
    free = {"name": None, "dropout": None}  # the preset that ships has another dropout since
    assert {**config, **free} == {**expected, **free}
    inputs = {"token_ids": np.arange(24).reshape(2, 12)}
    np.testing.assert_array_equal(
        *(keras.ops.convert_to_numpy(each.backbone(inputs)) for each in (task, lm))
    )


def test_without_naming_the_class(old):
    task = load_task(old)
    assert isinstance(task, gpt1_keras.GPT1CausalLM)
    backbone = keras_hub.models.Backbone.from_preset(old)
    assert isinstance(backbone, gpt1_keras.GPT1Backbone)
    for found, expected in zip(backbone.get_weights(), task.backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_its_tokenizer_and_preprocessors(old):
    fingerprint = load_tokenizer(NAME).fingerprint
    assert load_tokenizer(old).fingerprint == fingerprint
    assert gpt1_keras.GPT1Tokenizer.from_preset(old).fingerprint == fingerprint
    for preprocessor_cls in (
        gpt1_keras.GPT1CausalLMPreprocessor,
        gpt1_keras.GPT1TextClassifierPreprocessor,
        gpt1_keras.GPT1TextSimilarityPreprocessor,
        gpt1_keras.GPT1MultipleChoicePreprocessor,
    ):
        assert preprocessor_cls.from_preset(old).tokenizer.fingerprint == fingerprint

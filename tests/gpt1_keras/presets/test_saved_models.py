"""Presets and `.keras` files that earlier code saved load, and predict the same."""

import json
import pathlib

import keras
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.presets import load_task
from tests.helpers.make_saved_models import INPUTS, PRESETS

FOLDER = pathlib.Path(__file__).with_name("saved_models")
EXPECTED = json.loads((FOLDER / "predictions.json").read_text())


@pytest.fixture(scope="module", params=sorted(EXPECTED))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def task(name):
    if name in PRESETS:
        return load_task(FOLDER / name)
    return keras.saving.load_model(FOLDER / f"{name}.keras")


@pytest.mark.slow
def test_it_predicts_what_it_did(name, task):
    task.compile(run_eagerly=True)
    found = task.predict(INPUTS[name], verbose=0)
    np.testing.assert_allclose(found, EXPECTED[name], atol=1e-6)


def test_the_weights_have_their_paths(name, task):
    paths = [variable.path for variable in task.weights]
    if name != "lm":
        assert paths[-2:] == ["head/kernel", "head/bias"]
        assert isinstance(task.head, keras.layers.Dense)
        assert isinstance(task.extract_dropout, keras.layers.Dropout)
        assert task.auxiliary.token_embedding is task.backbone.token_embedding
    if name != "lstm":
        block = [path for path in paths if path.startswith("block_1/")]
        assert block == [
            "block_1/attention/qkv/kernel",
            "block_1/attention/qkv/bias",
            "block_1/attention/output_projection/kernel",
            "block_1/attention/output_projection/bias",
            "block_1/attention_norm/gamma",
            "block_1/attention_norm/beta",
            "block_1/expand/kernel",
            "block_1/expand/bias",
            "block_1/contract/kernel",
            "block_1/contract/bias",
            "block_1/feedforward_norm/gamma",
            "block_1/feedforward_norm/beta",
        ]


@pytest.mark.parametrize("name", PRESETS)
def test_it_has_its_arguments(name):
    saved = json.loads((FOLDER / name / "task.json").read_text())["config"]
    found = json.loads(json.dumps(load_task(FOLDER / name).get_config()))
    assert found.keys() == saved.keys()
    for argument in saved.keys() - {"backbone", "preprocessor"}:
        assert found[argument] == saved[argument]


def test_metadata_names_the_tasks(tmp_path):
    load_task(FOLDER / PRESETS[0]).save_to_preset(tmp_path)
    tasks = json.loads((tmp_path / "metadata.json").read_text())["tasks"]
    assert {name for name in gpt1_keras.__all__ if hasattr(getattr(gpt1_keras, name), "fit")} <= {
        *tasks,
        "GPT1Backbone",
        "LSTMBackbone",
    }
    assert "Task" not in tasks

"""Presets that earlier code saved: they load, and predict what they did."""

import json
import pathlib

import keras
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.presets import load_task

FOLDER = pathlib.Path(__file__).with_name("saved_presets")
EXPECTED = json.loads((FOLDER / "predictions.json").read_text())


@pytest.fixture(scope="module", params=sorted(EXPECTED))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def task(name):
    return load_task(FOLDER / name)


def test_it_predicts_what_it_did(name, task):
    task.compile(run_eagerly=True)
    found = task.predict(EXPECTED[name]["inputs"], verbose=0)
    np.testing.assert_allclose(found, EXPECTED[name]["outputs"], atol=1e-6)


def test_it_has_its_arguments(name, task):
    saved = json.loads((FOLDER / name / "task.json").read_text())["config"]
    found = json.loads(json.dumps(task.get_config()))
    assert found.keys() == saved.keys()
    for argument in saved.keys() - {"backbone", "preprocessor"}:
        assert found[argument] == saved[argument]


def test_the_layers_have_their_names(task):
    assert [variable.path for variable in task.weights[-2:]] == ["head/kernel", "head/bias"]
    assert isinstance(task.head, keras.layers.Dense)
    assert isinstance(task.extract_dropout, keras.layers.Dropout)
    assert task.auxiliary.token_embedding is task.backbone.token_embedding


def test_metadata_names_the_tasks(task, tmp_path):
    task.save_to_preset(tmp_path)
    tasks = json.loads((tmp_path / "metadata.json").read_text())["tasks"]
    assert {name for name in gpt1_keras.__all__ if hasattr(getattr(gpt1_keras, name), "fit")} <= {
        *tasks,
        "GPT1Backbone",
        "LSTMBackbone",
    }
    assert "RawTextTask" not in tasks

"""Loads the task of a preset, of any kind."""

import json
import pathlib

import keras
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.presets import find_preset, load_task

NAME = "gpt1_tiny_books"
TEXTS = ["a good film", "the staff were kind"]


@keras.saving.register_keras_serializable(package="outside")
class Reviewer(gpt1_keras.GPT1TextClassifier):
    """A user's own task."""


@pytest.fixture
def save(tiny_backbone, tiny_tokenizer, tmp_path):
    """Saves a classifier of a class as a preset; returns it and the folder's path."""

    def save(task_cls):
        preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
        task = task_cls(tiny_backbone, class_names=["bad", "good"], preprocessor=preprocessor)
        task.save_to_preset(str(tmp_path / "preset"))
        return task, tmp_path / "preset"

    return save


@pytest.fixture
def edit(save):
    """Changes task.json of a preset; returns the folder's path."""

    def edit(**changes):
        _, folder = save(gpt1_keras.GPT1TextClassifier)
        path = folder / "task.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return folder

    return edit


def assert_same(found, expected):
    assert type(found) is type(expected)
    assert found.class_names == expected.class_names
    outputs = [np.array(task(task.preprocessor(TEXTS))) for task in (found, expected)]
    np.testing.assert_array_equal(*outputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task_cls", "as_preset"), [(gpt1_keras.GPT1TextClassifier, str), (Reviewer, pathlib.Path)]
)
def test_a_task_and_its_head(save, task_cls, as_preset):
    """Also of a class that this package does not know."""
    task, folder = save(task_cls)
    assert_same(load_task(as_preset(folder)), task)
    assert_same(load_task(as_preset(folder), gpt1_keras.GPT1TextClassifier), task)


@pytest.mark.slow
@pytest.mark.parametrize("saved", ["mixed_bfloat16", "mixed_float16"])
def test_a_task_in_mixed_precision(saved, tiny_backbone, tiny_tokenizer, tmp_path):
    """It loads in Keras's own policy, as every preset of floats, or in the one that is asked for.

    The control, KerasHub 0.32's GPT2CausalLM, can be saved so, and not loaded.
    """
    backbone = type(tiny_backbone).from_config({**tiny_backbone.get_config(), "dtype": saved})
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    task = gpt1_keras.GPT1TextClassifier(
        backbone, class_names=["bad", "good"], preprocessor=preprocessor
    )
    task.save_to_preset(str(tmp_path))
    for asked, expected in ((None, "float32"), (saved, saved), ("float32", "float32")):
        found = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path), dtype=asked)
        for layer in (found.backbone, found.head):
            assert layer.dtype_policy.name == expected
        for ours, theirs in zip(found.get_weights(), task.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert load_task(tmp_path).backbone.dtype_policy.name == "float32"
    assert type(tiny_backbone).from_preset(str(tmp_path)).dtype_policy.name == "float32"


@pytest.mark.slow
def test_a_preset_that_ships():
    assert type(load_task(NAME)) is gpt1_keras.GPT1CausalLM
    assert type(load_task(find_preset(NAME))) is gpt1_keras.GPT1CausalLM


def test_another_task_than_the_accepted_ones(save):
    _, folder = save(Reviewer)
    expected = "is a Reviewer; expected a GPT1CausalLM or GPT1MultipleChoice."
    with pytest.raises(ValueError, match=expected):
        load_task(folder, gpt1_keras.GPT1CausalLM, gpt1_keras.GPT1MultipleChoice)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"registered_name": "outside>Unknown", "class_name": "Unknown"}, "is a Unknown, which"),
        ({"registered_name": "gpt1_keras>GPT1Tokenizer", "class_name": "GPT1Tokenizer"},
         "is a GPT1Tokenizer, which is not a registered task of raw texts"),
    ],
)  # fmt: skip
def test_a_class_that_is_not_a_registered_task(edit, changes, message):
    with pytest.raises(ValueError, match=message):
        load_task(edit(**changes))


@pytest.mark.parametrize("content", ["{", "[]", "{}", "3"])
def test_a_damaged_description(save, content):
    _, folder = save(gpt1_keras.GPT1TextClassifier)
    (folder / "task.json").write_text(content)
    with pytest.raises(ValueError, match=r"task\.json does not describe a task"):
        load_task(folder)


def test_a_preset_without_a_task(tiny_backbone, tmp_path):
    tiny_backbone.save_to_preset(tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a preset of a task: it has no task.json"):
        load_task(tmp_path)


def test_what_is_not_a_preset(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a preset: neither one that ships"):
        load_task(tmp_path)

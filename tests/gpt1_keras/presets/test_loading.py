"""Finds and loads presets: the tasks, tokenizers and runs of all kinds of folders."""

import json
import os
import pathlib
import shutil

import keras
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.presets import find_preset, load_task, load_tokenizer
from gpt1_keras.presets.loading import describe_tokenizer

# === Tasks ===

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
    with pytest.raises(ValueError, match="Reviewer.*GPT1CausalLM or GPT1MultipleChoice"):
        load_task(folder, gpt1_keras.GPT1CausalLM, gpt1_keras.GPT1MultipleChoice)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"registered_name": "outside>Unknown", "class_name": "Unknown"}, "Unknown"),
        ({"registered_name": "gpt1_keras>GPT1Tokenizer", "class_name": "GPT1Tokenizer"},
         "GPT1Tokenizer"),
    ],
)  # fmt: skip
def test_a_class_that_is_not_a_registered_task(edit, changes, message):
    with pytest.raises(ValueError, match=message):
        load_task(edit(**changes))


def test_a_preset_without_a_task(tiny_backbone, tmp_path):
    tiny_backbone.save_to_preset(tmp_path)
    with pytest.raises(FileNotFoundError, match="task.json"):
        load_task(tmp_path)


def test_a_preset_that_lost_its_head(save):
    _, folder = save(gpt1_keras.GPT1TextClassifier)
    (folder / "task.weights.h5").unlink()
    lost = str(folder)
    with pytest.raises(ValueError, match="task.weights.h5"):
        gpt1_keras.GPT1TextClassifier.from_preset(lost)
    assert gpt1_keras.GPT1TextClassifier.from_preset(lost, num_classes=3).num_classes == 3
    assert gpt1_keras.GPT1TextClassifier.from_preset(lost, load_weights=False).num_classes == 2


# === Tokenizers ===

TEXT = "A good film, and a lovely one; unknown: \u00e9\u4e2d\U0001f600"


@pytest.mark.parametrize("write", ["save_to_preset", "save_assets"])
def test_what_a_tokenizer_saves_gives_the_same_ids(write, tiny_tokenizer, tmp_path):
    getattr(tiny_tokenizer, write)(str(tmp_path))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.get_vocabulary() == tiny_tokenizer.get_vocabulary()
    assert tokenizer(TEXT).numpy().tolist() == tiny_tokenizer(TEXT).numpy().tolist()
    assert describe_tokenizer(tokenizer) == describe_tokenizer(tiny_tokenizer)


def test_a_whole_preset_holds_a_tokenizer(tiny_backbone, tiny_tokenizer, tmp_path):
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer)
    gpt1_keras.GPT1CausalLM(tiny_backbone, preprocessor).save_to_preset(str(tmp_path))
    assert load_tokenizer(tmp_path).get_vocabulary() == tiny_tokenizer.get_vocabulary()


def test_the_published_files_are_found_by_their_names(original_files, original_tokenizer, tmp_path):
    for path in original_files:
        shutil.copy(path, tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    assert describe_tokenizer(tokenizer) == describe_tokenizer(original_tokenizer)
    assert tokenizer.vocabulary_size() == 40481


def test_what_is_missing_is_named(tmp_path, tiny_tokenizer):
    with pytest.raises(FileNotFoundError, match="vocabulary.json.*tokenizer.json"):
        load_tokenizer(tmp_path)
    tiny_tokenizer.save_assets(tmp_path)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(FileNotFoundError, match="merges"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "tokenizer.json"),
        ("{}", "tokenizer.json.*dict"),
        (
            json.dumps({"module": "nowhere", "class_name": "Tokenizer", "config": {}}),
            "tokenizer.json",
        ),
        (
            json.dumps({"module": "keras.layers", "class_name": "Dense", "config": {"units": 3}}),
            "tokenizer.json.*Dense",
        ),
    ],
)
def test_an_odd_description_is_refused(content, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path)


def test_the_fingerprint_tells_vocabularies_merges_and_their_order_apart():
    def fingerprint(tokens, merges):
        vocabulary = {token: id for id, token in enumerate(tokens)}
        return describe_tokenizer(gpt1_keras.GPT1Tokenizer(vocabulary, merges))["fingerprint"]

    tokens = ["<unk>", "a", "b", "a</w>", "b</w>", "ab</w>", "ba</w>"]
    fingerprints = [
        fingerprint(tokens, ["a b</w>", "b a</w>"]),
        fingerprint(tokens, ["b a</w>", "a b</w>"]),
        fingerprint(tokens, ["a b</w>"]),
        fingerprint(tokens[::-1], ["a b</w>", "b a</w>"]),
    ]
    assert len(set(fingerprints)) == 4
    # The order of a JSON object says nothing.
    shuffled = dict(sorted({token: id for id, token in enumerate(tokens)}.items()))
    again = describe_tokenizer(gpt1_keras.GPT1Tokenizer(shuffled, ["a b</w>", "b a</w>"]))
    assert again["fingerprint"] == fingerprints[0]


def test_the_normalization_of_files_that_say_nothing(tiny_tokenizer, tmp_path):
    tiny_tokenizer.save_assets(tmp_path)
    assert load_tokenizer(tmp_path).normalization == "bert"
    assert load_tokenizer(tmp_path, "original").normalization == "original"
    with pytest.raises(ValueError, match="newest"):
        load_tokenizer(tmp_path, "newest")


def test_a_tokenizer_keeps_the_normalization_that_it_was_saved_with(tiny_tokenizer, tmp_path):
    tiny_tokenizer.save_to_preset(str(tmp_path))
    assert load_tokenizer(tmp_path, "bert").normalization == "bert"
    with pytest.raises(ValueError, match="'bert'.*'original'"):
        load_tokenizer(tmp_path, "original")


# === Folders of runs ===


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A fine-tuning and a pre-training; only what finds them reads these files."""
    for preset in ("mine/best", "books/preset"):
        (tmp_path / "runs" / preset).mkdir(parents=True)
        (tmp_path / "runs" / preset / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


@pytest.mark.parametrize("run", ["mine", "books"])
def test_a_run(run, runs):
    [preset] = (runs / run).iterdir()
    for path in (runs / run, f"runs/{run}", preset, os.path.join("runs", run, preset.name)):
        assert find_preset(path) == preset


def test_the_tokenizer_of_a_run(runs, tiny_tokenizer):
    tiny_tokenizer.save_to_preset(str(runs / "books" / "preset"))
    assert load_tokenizer("runs/books").fingerprint == tiny_tokenizer.fingerprint


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("runs", "runs is not a preset: .* runs holds books/, mine/.$"),
        ("runs/min", r"runs/min is not a preset: .* runs holds .*\. Did you mean runs/mine\?$"),
        ("runs/mine/last", "runs/mine holds best/.$"),
        ("nowhere", "The current folder holds runs/.$"),
        ("nowhere/mine", "nowhere: No such file or directory.$"),
    ],
)
def test_a_wrong_path(path, message, runs):
    with pytest.raises(FileNotFoundError, match=message):
        find_preset(path)


def test_a_long_list_is_cut(runs):
    for number in range(20):
        (runs / f"run {number:02}").mkdir()
    with pytest.raises(FileNotFoundError, match=r", run 06/, run 07/ and 12 more\.$"):
        find_preset("runs")

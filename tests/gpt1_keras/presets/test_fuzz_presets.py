"""Damaged presets: each loads, or is refused in words that name it."""

import functools
import json
import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

import gpt1_keras
from gpt1_keras.presets import load_task
from tests.helpers.fuzzing import damaged, search

DESCRIPTIONS = ("config.json", "task.json", "preprocessor.json", "tokenizer.json", "metadata.json")
ASSETS = ("assets/tokenizer/merges.txt", "assets/tokenizer/vocabulary.json")
WEIGHTS = ("model.weights.h5", "task.weights.h5")
ODD = (None, True, -1, 0, 1, 7, 2**31, 2**70, 1e300, "", "x", "relu", [], [1], {}, {"a": 1})


@pytest.fixture(scope="module")
def preset(tmp_path_factory, tiny_tokenizer):
    """The smallest classifier: its folder."""
    backbone = gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(), 1, 1, 4, 4, max_sequence_length=16
    )
    preprocessor = gpt1_keras.GPT1TextClassifier.preprocessor_cls(tiny_tokenizer, 16)
    classifier = gpt1_keras.GPT1TextClassifier(backbone, 2, preprocessor=preprocessor)
    folder = tmp_path_factory.mktemp("preset") / "good"
    classifier.save_to_preset(str(folder))
    return folder


@pytest.fixture(scope="module")
def load(preset):
    """Loads the preset with a file of other content; None if the preset is refused."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "hostile")

        def load(name, content):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(preset, folder)
            (folder / name).write_bytes(content)
            try:
                return load_task(folder)
            except (ValueError, OSError) as error:
                assert "hostile" in str(error)  # the folder's name
                return None

        yield load


@st.composite
def changed(draw, value):
    """JSON with one of its values replaced by an odd one, left out, or put elsewhere."""
    paths, inner = [], [((), value)]
    while inner:
        path, node = inner.pop()
        keys = node if isinstance(node, dict) else range(len(node)) if type(node) is list else ()
        for key in keys:
            paths.append((*path, key))
            inner.append((paths[-1], node[key]))
    copy = json.loads(json.dumps(value))
    *path, last = draw(st.sampled_from(paths))
    node = copy
    for key in path:
        node = node[key]
    if draw(st.integers(0, 4)) == 0:
        del node[last]
    else:
        node[last] = draw(st.sampled_from(ODD) | st.text(max_size=3) | st.integers())
    return copy


def test_the_good_one(load):
    assert load("README.md", b"").num_classes == 2


# Each of these gave a traceback, a message without the file's name, or an endless allocation.
@pytest.mark.parametrize(
    ("name", "content"),
    [(name, content) for name in DESCRIPTIONS[:4] for content in (b'{"a":', b"[]", b"[" * 9999)]
    + [("config.json", content) for content in (b"{}", b'{"registered_name": []}', b"\xff")]
    + [("task.json", b'{"registered_name": [], "class_name": 1}')]
    + [(ASSETS[0], content) for content in (b"#version: 0.2\na\n", b"\xff", b"q q\n")]
    + [(ASSETS[1], content) for content in (b"{", b"{}", b'{"<unk>": 1}', b'{"\\ud800": 0}')]
    + [(name, content) for name in WEIGHTS for content in (b"", b"\x89HDF\r\n\x1a\n" + bytes(99))],
)  # fmt: skip
def test_every_fault_that_was_found(load, name, content):
    assert load(name, content) is None


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [(name, key, value) for name in ("config.json", "task.json") for key, value in
     [("num_layers", 10**6), ("hidden_dim", 10**7), ("vocabulary_size", 2**40),
      ("intermediate_dim", 10**12), ("max_sequence_length", 10**11)]]
    + [("task.json", "num_classes", 10**9), ("task.json", "score_range", [0, 10**9])],
)  # fmt: skip
def test_a_model_that_no_weights_are_there_for(preset, tmp_path, name, key, value):
    """It is refused before anything of its size is made."""
    folder = tmp_path / "hostile"
    shutil.copytree(preset, folder)
    description = json.loads((folder / name).read_text())
    config = description["config"]
    of_backbone = config if name == "config.json" else config["backbone"]["config"]
    if key in of_backbone:
        of_backbone[key] = value
    else:  # of the head
        config |= {"class_names": None, key: value}
    (folder / name).write_text(json.dumps(description))
    described = rf"hostile/{name}"
    with pytest.raises(ValueError, match=rf"damaged.*{described}"):
        load_task(folder)
    fresh = functools.partial(gpt1_keras.GPT1TextClassifier.from_preset, load_weights=False)
    with pytest.raises(ValueError, match=rf"damaged.*{described}"):
        fresh(folder)
    for file in WEIGHTS:
        (folder / file).unlink()
    with pytest.raises(ValueError, match=rf"{described}.* in 1,000"):
        fresh(folder)


def test_a_deep_checkpoint_of_transformers(tmp_path):
    sizes = {"n_layer": 10**6, "n_embd": 2, "n_head": 1, "n_positions": 8}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "openai-gpt", **sizes}))
    with pytest.raises(ValueError, match="config.json.* 1,000,000 layers"):
        gpt1_keras.GPT1CausalLM.from_preset(tmp_path, load_weights=False)


@pytest.mark.parametrize("name", [*DESCRIPTIONS, *ASSETS, *WEIGHTS])
def test_a_named_pipe(preset, tmp_path, name, time_limit):
    """Reading it would wait for a writer."""
    folder = tmp_path / "hostile"
    shutil.copytree(preset, folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises((ValueError, FileNotFoundError), match="hostile"):
        load_task(folder)
    with pytest.raises((ValueError, FileNotFoundError), match="hostile"):
        gpt1_keras.GPT1TextClassifier.from_preset(str(folder), num_classes=3)


@pytest.mark.slow
@search(8)
@hypothesis.given(st.data())
def test_changed_descriptions(load, preset, data):
    name = data.draw(st.sampled_from(DESCRIPTIONS))
    description = json.loads((preset / name).read_bytes())
    load(name, json.dumps(data.draw(changed(description))).encode())


@pytest.mark.slow
@search(8)
@hypothesis.given(st.data())
def test_damaged_files(load, preset, data):
    name = data.draw(st.sampled_from(DESCRIPTIONS + ASSETS))
    load(name, data.draw(damaged((preset / name).read_bytes())))


@pytest.mark.slow
@search(6)
@hypothesis.given(st.data())
def test_damaged_weights(load, preset, data):
    name = data.draw(st.sampled_from(WEIGHTS))
    load(name, data.draw(damaged((preset / name).read_bytes())))

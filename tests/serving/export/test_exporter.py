"""Versions count up, a failed export leaves nothing, and errors of the program are one line."""

import json
import os
import pathlib
import re
import runpy
import shlex
import shutil
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from serving.export import export, exporter, warmup
from serving.export.export_metadata import readme
from serving.export.signature import Signatures
from serving.server.models.servable import Servable


@pytest.fixture
def quick_save(monkeypatch):
    """Makes saving a graph quick, for tests of what is around it."""

    def save(module, path, signatures):
        os.mkdir(path)
        pathlib.Path(path, "saved_model.pb").write_bytes(b"graph")

    monkeypatch.setattr(tf.saved_model, "save", save)
    monkeypatch.setattr(exporter, "signatures_of", lambda spec: Signatures(40, {}))
    monkeypatch.setattr(exporter, "_check_finite", lambda signatures: None)
    monkeypatch.setattr(exporter, "readme", lambda *arguments: "")


@pytest.fixture(scope="module")
def model(make_classifier):
    return make_classifier("single")


def test_versions_count_up(tmp_path, model, quick_save):
    output = tmp_path / "new" / "sentiment"
    assert [export(model, output) for _ in range(3)] == [str(output / str(n)) for n in (1, 2, 3)]
    assert sorted(child.name for child in output.iterdir()) == ["1", "2", "3"]
    shutil.rmtree(output / "1")
    assert export(model, str(output)) == str(output / "4")


def test_versions_follow_the_highest(tmp_path, model, quick_save):
    for name in ("9", "10", "latest", "5.old", "-70", "²"):
        (tmp_path / name).mkdir()
    (tmp_path / "12").write_text("a file in the way")
    assert export(model, tmp_path) == str(tmp_path / "13")


def test_the_readme_s_commands_take_any_name(tmp_path, model, quick_save, monkeypatch):
    """As a shell splits them; names of classes stay on their line."""
    monkeypatch.setattr(exporter, "readme", readme)
    metadata = {**exporter.metadata_of(model), "class_names": ["a|b\n# c", "<x>"]}
    monkeypatch.setattr(exporter, "metadata_of", lambda model: metadata)
    name = """it's a "model" $HOME"""
    path = export(model, tmp_path, model_name=name)
    text = pathlib.Path(path, "assets.extra", "README.md").read_text(encoding="utf-8")
    block = re.search("```\n(docker run.*?)```", text, re.DOTALL)[1]
    docker, server = map(shlex.split, block.splitlines())
    assert docker[4:-1] == ["-v", f"BASE_PATH:/models/{name}", "-e", f"MODEL_NAME={name}"]
    assert server[2:4] == ["--model_name", name]
    assert "\nClasses: a\\|b\\n# c, \\<x>.\n" in text


def test_two_exports_at_once(tmp_path, model, quick_save, monkeypatch):
    """Each has a number of its own: it is taken when the export is whole."""
    others = []

    def save(module, path, signatures, save=tf.saved_model.save):
        save(module, path, signatures)
        monkeypatch.setattr(tf.saved_model, "save", save)
        others.append(export(model, tmp_path))

    monkeypatch.setattr(tf.saved_model, "save", save)
    assert export(model, tmp_path) == str(tmp_path / "2")
    assert others == [str(tmp_path / "1")]
    for number in "12":
        assert (tmp_path / number / "saved_model.pb").is_file()


def test_warmup_calls_the_model_by_a_given_name(tmp_path, model, quick_save, monkeypatch):
    names = []
    monkeypatch.setattr(
        warmup,
        "warmup_requests",
        lambda signatures, name: names.append(name) or [],
    )
    export(model, tmp_path, model_name="other")
    export(model, tmp_path)
    assert names == ["other", tmp_path.name]


@pytest.mark.parametrize("step", ["save", "warmup"])
def test_a_failed_export_leaves_nothing(tmp_path, model, quick_save, monkeypatch, step):
    export(model, tmp_path)

    def fail(*args, **kwargs):
        raise OSError("No space left on device")

    if step == "save":
        monkeypatch.setattr(tf.saved_model, "save", fail)
    else:
        monkeypatch.setattr(warmup, "warmup_requests", fail)
    with pytest.raises(OSError, match="No space left"):
        export(model, tmp_path)
    assert [child.name for child in tmp_path.iterdir()] == ["1"]


@pytest.mark.slow
def test_a_model_that_has_diverged(tmp_path, make_classifier):
    model = make_classifier("single")
    model.head.bias.assign([float("nan")] * model.head.units)
    with pytest.raises(ValueError, match="NaN"):
        export(model, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported(tmp_path, tiny_backbone, tiny_tokenizer):
    size = tiny_tokenizer.vocabulary_size()
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer)

    class OtherBackbone(gpt1_keras.GPT1Backbone):
        def call(self, *args, **kwargs):
            return 2.0 * super().call(*args, **kwargs)

    lstm = gpt1_keras.LSTMBackbone(size, 16, 16, max_sequence_length=32)
    derived = OtherBackbone(size, 1, 1, 4, 4, max_sequence_length=8)
    for model, noun in (
        (tiny_backbone, "GPT1Backbone"),
        (gpt1_keras.GPT1TextClassifier(tiny_backbone, 2), "preprocessor"),
        (gpt1_keras.GPT1CausalLM(derived, preprocessor), "OtherBackbone"),
        (gpt1_keras.GPT1CausalLM(lstm, preprocessor), "LSTMBackbone"),
    ):
        with pytest.raises(ValueError, match=noun):
            export(model, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def run_command(monkeypatch, capsys):
    """A function that runs `python -m serving.export`: exit status, stdout and stderr."""

    def run(preset, output):
        arguments = ["serving.export", f"--model={preset}", f"--output={output}"]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as caught, warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*found in sys.modules")
            runpy.run_module("serving.export", run_name="__main__")
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return run


@pytest.mark.slow
def test_the_command(tmp_path, model, run_command):
    model.save_to_preset(tmp_path / "preset")
    output = tmp_path / "exports" / "sentiment"
    killed = output / ".tmp-of_a_kill"
    killed.mkdir(parents=True)
    status, stdout, stderr = run_command(tmp_path / "preset", output)
    assert (status, stdout) == (0, f"{output / '1'}\n")
    assert stderr.startswith(f"note: {killed} is an export that is being written, or was killed")
    servable = Servable("sentiment", 1, output / "1")
    found = servable.predict(
        "serving_default", {"text": tf.make_tensor_proto(["a good film", "dull"])}
    )
    expected = keras.ops.softmax(model.predict_on_batch(["a good film", "dull"]))
    np.testing.assert_allclose(found["scores"], expected, atol=1e-5, rtol=0)


def no_preset(preset):
    pass


def damaged(preset):
    preset.mkdir()
    (preset / "task.json").write_text('{"module"')


def no_task(preset):
    preset.mkdir()
    described = {"class_name": "GPT1Tokenizer", "registered_name": "gpt1_keras>GPT1Tokenizer"}
    (preset / "task.json").write_text(json.dumps(described))
    (preset / "config.json").write_text("{}")


def without_export(preset):
    tokenizer = gpt1_keras.GPT1Tokenizer.learn(["a b"], num_merges=1)
    backbone = gpt1_keras.LSTMBackbone(tokenizer.vocabulary_size(), 8, 8, max_sequence_length=16)
    lm = gpt1_keras.GPT1CausalLM(backbone, gpt1_keras.GPT1CausalLMPreprocessor(tokenizer))
    lm.save_to_preset(preset)


@pytest.mark.parametrize(
    ("write", "noun"),
    [
        (no_preset, "not a preset"),
        (damaged, "task.json"),
        (no_task, "GPT1Tokenizer"),
        (without_export, "LSTMBackbone"),
    ],
)
def test_the_command_with_a_bad_model(tmp_path, run_command, write, noun):
    write(tmp_path / "preset")
    status, stdout, stderr = run_command(tmp_path / "preset", tmp_path / "exports")
    assert (status, stdout, stderr.count("\n")) == (1, "", 1)
    assert stderr.startswith("error: ") and noun in stderr
    assert not (tmp_path / "exports").exists()

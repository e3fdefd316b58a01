"""The folder of a run stands for its preset, and a wrong path says what there is."""

import os

import pytest

from gpt1_keras.presets import find_preset, load_tokenizer


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

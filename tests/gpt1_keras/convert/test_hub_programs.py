"""Programs that take a preset's name also take a handle: they download it, or name the error."""

import json
import pathlib

import pytest

from gpt1_keras.presets.publishing import licence_of
from tests.helpers.commands import main_of
from tests.helpers.published_checkpoint import HANDLE

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def files(tmp_path):
    """Options that name small files of labelled texts."""
    rows = "".join(f"{word} film,{label}\n" for word, label in [("good", 1), ("dull", 0)] * 8)
    path = tmp_path / "texts.csv"
    path.write_text("text,label\n" + rows)
    return ["--train", str(path), "--validation", str(path)]


@pytest.mark.slow
def test_fine_tuning_from_a_handle(hub, files, tmp_path, capsys):
    assert licence_of(HANDLE) == "mit"
    finetune = main_of("training.finetune")
    options = ["--preset", HANDLE, "--epochs", "1", "--batch-size", "16"]
    output = tmp_path / "run"
    assert finetune([*files, *options, "--output", str(output)]) == 0, capsys.readouterr().err
    assert json.loads((output / "options.json").read_text())["preset"] == HANDLE
    card = (output / "best" / "README.md").read_text(encoding="utf-8")
    assert f"fine-tuned from `{HANDLE}`" in card
    assert "license: mit" in card and "base_model: openai-community/openai-gpt" in card
    assert "| train examples | 16 |" in card
    assert str(tmp_path) not in card


ARGUMENTS = {
    "serving.export": ["--model", HANDLE, "--output", "out"],
    "serving.generate": ["--model", HANDLE, "a good film"],
    "serving.tflite": ["--model", HANDLE, "--output", "out"],
    "training.paper ablate": ["--tasks", "cola", "--preset", HANDLE, "--output", "out"],
    "training.compress_preset": ["--preset", HANDLE, "--output", "out"],
    "training.corpus": ["--input", "texts", "--tokenizer", HANDLE, "--output", "out"],
    "training.evaluate": ["--task", "cola", "--model", HANDLE, "--output", "out"],
    "training.finetune": ["--task", "cola", "--preset", HANDLE, "--output", "out"],
    "training.paper zero_shot": ["--preset", HANDLE, "--output", "out"],
}


@pytest.mark.parametrize("program", ARGUMENTS)
def test_no_network_is_one_line(program, hub, tmp_path, monkeypatch, capsys):
    """Which also shows that each program downloads what it is given."""
    hub.repositories.clear()
    (tmp_path / "texts" / "train").mkdir(parents=True)
    (tmp_path / "texts" / "valid").mkdir()
    for split in ("train", "valid"):
        (tmp_path / "texts" / split / "text.txt").write_text("a good film\n")
    monkeypatch.chdir(tmp_path)
    module, *name = program.split()
    assert main_of(module)([*name, *ARGUMENTS[program]]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: Could not download config.json of {HANDLE}: ")
    assert not (tmp_path / "out" / "best").exists()

"""A search: what it tries, what it keeps, and that it resumes after an interruption."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

import gpt1_keras
from tests.helpers.eager import eagerly
from training.evaluation.predictions import DivergedError
from training.finetune import main
from training.runs import search as module
from training.runs.finetune_options import FinetuneOptions
from training.runs.search import search

pytestmark = pytest.mark.slow

OPTIONS = FinetuneOptions("rte", config="gpt1_micro", epochs=6, learning_rate=1e-3)
BEST_RATE = 4e-3


def made_up(options, folder, data=None, tell=None):
    """A fine-tuning whose score is known: highest at one rate and one decay, and a little noise."""
    if options.learning_rate > 6e-3:
        raise DivergedError("not numbers")
    distance = abs(np.log(options.learning_rate / BEST_RATE)) + abs(options.layer_decay - 0.8)
    score = 0.9 - 0.1 * distance + 0.001 * options.seed
    (folder / "best").mkdir(parents=True)
    (folder / "best" / "options.json").write_text(json.dumps([options.learning_rate, options.seed]))
    (folder / "result.json").write_text('{"baselines": null}')
    return {"score": score, "best_epoch": options.epochs, "seconds": 10.0 * options.epochs}


def search_with(finetune, *arguments):
    """A search with the fine-tuning replaced, which has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "finetune", finetune)
        return search(*arguments)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    return folder, search_with(made_up, OPTIONS, folder, 14, 3)


def test_it_finds_what_is_best(whole):
    folder, result = whole
    history = result["history"]
    first = {"learning_rate": 1e-3, "epochs": 6, "lm_coefficient": 0.5, "layer_decay": 1.0}
    assert first.items() <= history[0].items()
    medians = [entry["median"] for entry in history]
    found = max(median for median in medians if median is not None)
    assert result["median"] == found == np.median(result["scores"]) > medians[0] + 0.05
    assert abs(np.log(result["learning_rate"] / BEST_RATE)) < 0.5
    for entry in history:
        assert 1e-3 / 8 <= entry["learning_rate"] <= 8e-3 and 1 <= entry["epochs"] <= 6
        assert 0 <= entry["lm_coefficient"] <= 1 and 0.5 <= entry["layer_decay"] <= 1
        assert (entry["scores"] is None) == (entry["learning_rate"] > 6e-3)


def test_it_keeps_the_best_trial_s_presets_alone(whole):
    folder, result = whole
    presets = sorted(path.parent.parent.name for path in folder.glob("trials/*/*/best"))
    assert presets == [f"{result['best_trial']:03d}"] * 3
    kept = json.loads((folder / "best" / "options.json").read_text())
    assert kept == [result["learning_rate"], 1]  # the seed of the median


def test_its_table_and_plot(whole):
    folder, result = whole
    header, _, best, *others = (folder / "search.md").read_text().splitlines()
    assert header.startswith(
        "| trial | learning rate | epochs | lm coefficient | layer decay | med"
    )
    assert best.startswith(f"| {result['best_trial']} | {result['learning_rate']:.4g} |")
    assert f"| {100 * result['median']:.1f} |" in best
    assert len(others) == 13
    assert (folder / "search.svg").stat().st_size > 1000


def test_interrupted_or_prolonged_it_is_the_same(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "write_report", lambda *_: None)
    ran = []

    def interrupted(options, folder, data, tell):
        ran.append(options)
        if len(ran) == 8:  # the third trial's second seed
            raise KeyboardInterrupt
        return made_up(options, folder)

    with pytest.raises(KeyboardInterrupt):
        search_with(interrupted, OPTIONS, tmp_path, 14, 3)
    for path in (tmp_path / "trials" / "003").glob("*"):
        shutil.rmtree(path)  # what `finetune` would go on from
    search_with(made_up, OPTIONS, tmp_path, 5, 3)
    found = search_with(made_up, OPTIONS, tmp_path, 14, 3)

    assert found["history"] == whole[1]["history"]  # also the seconds, which its seeds took
    assert found["best_trial"] == whole[1]["best_trial"]
    assert search_with(None, OPTIONS, tmp_path, 3, 3) == found  # it has as many


def test_where_every_trial_diverges(tmp_path):
    def diverge(options, folder, data, tell):
        raise DivergedError("not numbers")

    with pytest.raises(ValueError, match="--learning-rate"):
        search_with(diverge, OPTIONS, tmp_path, 2, 1)
    assert "diverged" in (tmp_path / "search.md").read_text()


def test_other_data(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "write_report", lambda *_: None)
    path = tmp_path / "a.csv"
    options = dataclasses.replace(OPTIONS, task=None, train=str(path))
    rows = [f"{'good' if i % 2 else 'bad'} film {i},{'ny'[i % 2]}\n" for i in range(20)]
    path.write_text("text,label\n" + "".join(rows))
    found = search_with(made_up, options, tmp_path / "run", 2, 1)
    assert search_with(None, options, tmp_path / "run", 2, 1) == found
    path.write_text("text,label\n" + "".join(rows * 2))
    for trials in (2, 3):
        with pytest.raises(ValueError, match="16 training examples"):
            search_with(None, options, tmp_path / "run", trials, 1)


def test_an_lstm_has_no_layer_wise_decay(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "write_report", lambda *_: None)
    options = FinetuneOptions("rte", config="lstm_micro", epochs=2, learning_rate=1e-3)

    def finetune(options, folder, data, tell):
        assert options.layer_decay is None
        (folder / "best").mkdir(parents=True)
        (folder / "best" / "file").touch()
        (folder / "result.json").write_text('{"baselines": null}')
        return {"score": 0.5, "best_epoch": 1, "seconds": 10.0}

    assert "layer_decay" not in search_with(finetune, options, tmp_path, 2, 1)["history"][1]


def test_the_program(tmp_path, capsys):
    lines = [f"{'good' if i % 2 else 'bad'} film,{'ny'[i % 2]}\n" for i in range(8)]
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(lines))
    file, run = str(tmp_path / "a.csv"), tmp_path / "run"
    arguments = ["--train", file, "--validation", file, "--config", "gpt1_micro", "--epochs", "1"]
    arguments += ["--num-merges", "20", "--output", str(run)]
    assert main([*arguments, "--search", "0"]) == 1
    assert "search must be at least 1" in capsys.readouterr().err
    assert main([*arguments, "--seeds", "2"]) == 1
    assert "seeds needs --search" in capsys.readouterr().err
    assert not run.exists()
    with eagerly():
        assert main([*arguments, "--layer-decay", "0.9", "--search", "2"]) == 0
    result = json.loads((run / "result.json").read_text())
    printed = capsys.readouterr()
    assert f"Best: trial {result['best_trial']}, median" in printed.out
    assert printed.err.count("8 examples of 2 classes") == 1
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(str(run / "best"))
    assert classifier.class_names == ["n", "y"]

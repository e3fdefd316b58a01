"""The grid of ablations: its runs, its resumption, and its plot."""

import json

import pytest

import gpt1_keras
from training.datasets.data_options import DataOptions
from training.datasets.paper_datasets import DATASETS
from training.paper.ablate import ablate, ablation_grid
from training.paper.commands import ablate as main
from training.paper.grid_options import AblationOptions, GridOptions


@pytest.fixture
def preset(tmp_path, tiny_backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer)
    gpt1_keras.GPT1CausalLM(tiny_backbone, preprocessor).save_to_preset(str(tmp_path / "preset"))
    return str(tmp_path / "preset")


def test_the_grid(preset):
    shared = GridOptions("sst2,rte", preset, "out", seeds=2, epochs=1)
    grid = ablation_grid(shared, AblationOptions(lstm=preset, layers=True))
    names = ["full", "no_auxiliary_loss", "no_pretraining", "lstm", "0_blocks", "1_blocks"]
    assert list(grid) == [
        f"{task}/{name}/seed_{seed}"
        for seed in (0, 1)
        for task in ("sst2", "rte")
        for name in names
    ]
    options = grid["rte/1_blocks/seed_1"]
    assert (options.task, options.seed, options.transfer) == ("rte", 1, "1")
    assert (options.preset, options.epochs, options.lm_coefficient) == (preset, 1, 0.5)
    assert grid["sst2/no_pretraining/seed_0"].transfer == "none"
    assert grid["sst2/no_auxiliary_loss/seed_0"].lm_coefficient == 0.0
    shared = GridOptions("cola", preset, "out", seeds=1)
    all_variants = ablation_grid(shared, AblationOptions())
    assert list(all_variants) == [f"cola/{name}/seed_0" for name in names[:3]]
    some = ablation_grid(shared, AblationOptions("full,no_pretraining", limit_examples=9))
    assert list(some) == ["cola/full/seed_0", "cola/no_pretraining/seed_0"]
    assert {options.limit_examples for options in some.values()} == {9}


@pytest.mark.slow
def test_it_resumes_and_plots(preset, tfds_dir, tmp_path, monkeypatch, capsys):
    """With the fine-tuning replaced, which has tests of its own."""
    runs = []

    def finetune(options, output, *_):
        if (output / "result.json").is_file():
            return
        if len(runs) == 3:
            raise KeyboardInterrupt
        runs.append(output)
        value = 0.5 + 0.01 * len(runs)
        metric = DATASETS[options.task].metrics[0]
        facts = {"best_epoch": 1, "decoder": "GPT1Backbone", "score": value, "metric": metric}
        facts |= {"train_examples": 9, "history": [{"epoch": 1, metric: value}]}
        output.mkdir(parents=True)
        (output / "result.json").write_text(json.dumps({**vars(options), **facts}))

    monkeypatch.setattr("training.paper.grids.finetune", finetune)
    arguments = ["--tasks", "sst2", "--preset", preset, "--layers", "--seeds", "1"]
    arguments += ["--data-dir", tfds_dir, "--limit-examples", "99"]
    arguments += ["--output", str(tmp_path / "out")]
    assert main(arguments) == 130
    assert "the same command goes on" in capsys.readouterr().err
    done, runs[:] = list(runs), []
    assert main(arguments) == 0
    assert not set(runs) & set(done) and len(runs) + len(done) == 5
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("runs", "tables.md", "table4.svg", "table5.svg"),
        *("baselines", "scores.csv", "predictions", "transfer.svg"),
    }  # fmt: skip
    text = (tmp_path / "out" / "tables.md").read_text()
    assert "| ours, no pre-training |" in text and text in capsys.readouterr().out
    assert "| baseline: tf-idf + logistic regression |" in text
    # Another data set's runs beside these, without blocks, add no panel to the figure.
    runs[:] = []
    others = ["--tasks", "cola", "--preset", preset, "--seeds", "1", "--data-dir", tfds_dir]
    assert main([*others, "--output", str(tmp_path / "out")]) == 0
    assert main(arguments) == 0
    figure = (tmp_path / "out" / "transfer.svg").read_text()
    assert ">sst2</text>" in figure and ">cola</text>" not in figure


def test_errors_are_one_line(preset, tmp_path, capsys):
    for arguments, message in (
        (["--tasks", "sst2,sst3", "--preset", preset], "Unknown task 'sst3'"),
        (["--tasks", "sst2", "--preset", "nowhere"], "nowhere is not a preset"),
        (["--tasks", "sst2", "--preset", preset, "--seeds", "0"], "seeds must be at least 1"),
        (["--tasks", "sst2", "--preset", preset, "--epochs", "0"], "epochs must be at least 1"),
        (
            ["--tasks", "sst2", "--preset", preset, "--variants", "full,lstm"],
            "Unknown variant 'lstm'; expected one of ['full', 'no_auxiliary_loss'",
        ),
    ):
        assert main([*arguments, "--output", str(tmp_path / "out")]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_missing_data_set(preset, tmp_path):
    with pytest.raises(FileNotFoundError, match="--download"):
        grid = ablation_grid(GridOptions("sst2", preset, "out"), AblationOptions())
        ablate(grid, tmp_path / "out", DataOptions(str(tmp_path)))

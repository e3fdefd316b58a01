"""Learning curves: their runs, their resumption, what they show, and what they keep."""

import csv
import json

import numpy as np
import pytest

import gpt1_keras
from tests.helpers.recomputing import recompute
from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import DATASETS
from training.evaluation.metrics import score
from training.evaluation.predictions import write_predictions
from training.paper.commands import learning_curve as main
from training.paper.grid_options import GridOptions
from training.paper.learning_curve import by_size, make_curve


@pytest.fixture
def preset(tmp_path, tiny_backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer)
    gpt1_keras.GPT1CausalLM(tiny_backbone, preprocessor).save_to_preset(str(tmp_path / "preset"))
    return str(tmp_path / "preset")


def test_the_runs(preset):
    """Few labels are read in more epochs; the first seed of all sizes comes first."""
    sizes = {100: 100, 1000: 1000, None: 2490}
    shared = GridOptions("rte", preset, "out", seeds=2, learning_rate=1e-3)
    runs = make_curve(shared, "rte", sizes, min_updates=100)
    assert list(runs) == [
        f"{size}/rte/{variant}/seed_{seed}"
        for seed in (0, 1)
        for size in ("100", "1000", "all")
        for variant in ("full", "no_pretraining")
    ]
    options = runs["100/rte/no_pretraining/seed_1"]
    assert (options.limit_examples, options.epochs, options.transfer) == (100, 25, "none")
    assert (options.seed, options.learning_rate) == (1, 1e-3)
    assert runs["1000/rte/full/seed_0"].epochs == 4  # of 32 updates
    assert (runs["all/rte/full/seed_0"].epochs, runs["all/rte/full/seed_0"].limit_examples) == (
        *(3, None),
    )


@pytest.fixture
def fine_tuned(monkeypatch, tfds_dir):
    """Fine-tuning replaced, which has tests of its own; the folders of the runs."""
    folders = []

    def finetune(options, output, *_):
        if (output / "result.json").is_file():
            return
        if len(folders) == 3:
            raise KeyboardInterrupt
        folders.append(output)
        task = DATASETS[options.task]
        validation = load_examples(task, "validation", DataOptions(tfds_dir)).labelled()
        random = np.random.default_rng(len(folders))
        answers = np.where(random.random(len(validation)) < 0.7, validation.labels, 1)
        scores = score(validation, answers, task.metrics)
        size = options.limit_examples or 3668
        facts = {"best_epoch": 1, "decoder": "GPT1Backbone", "metric": "f1", "seconds": 60.0}
        facts |= {"history": [{"epoch": 1, **scores}], "score": scores["f1"]}
        (output / "best").mkdir(parents=True)
        write_predictions(output, validation, answers)
        content = {**vars(options), **facts, "train_examples": size}
        (output / "result.json").write_text(json.dumps(content))

    monkeypatch.setattr("training.paper.grids.finetune", finetune)
    return folders


@pytest.mark.slow
def test_it_goes_on_and_shows_and_keeps_all(preset, tmp_path, tfds_dir, fine_tuned, capsys):
    out = tmp_path / "out"
    arguments = ["--tasks", "mrpc", "--preset", preset, "--labels", "50,200,9000", "--seeds", "2"]
    arguments += ["--data-dir", tfds_dir, "--output", str(out), "--min-updates", "10"]
    assert main(arguments) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert "no pre-training" in (out / "learning_curve.svg").read_text()  # of what there is
    done, fine_tuned[:] = list(fine_tuned), []
    assert main(arguments) == 130
    assert not set(done) & set(fine_tuned)
    fine_tuned[:] = []
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "Run 8 of 8: 200/mrpc/no_pretraining/seed_1" in printed  # there are no 9,000
    assert {path.name for path in out.iterdir()} == {
        *("baselines", "runs", "predictions", "scores.csv"),
        *("learning_curve.md", "learning_curve.svg"),
    }
    assert not list(out.rglob("best"))  # presets would fill the disk

    with open(out / "scores.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    ours = [float(r["score"]) for r in rows if (r["variant"], r["labels"]) == ("full", "200")]
    found = sorted(100 * value for value in ours[::2])  # f1, and then accuracy
    text = (out / "learning_curve.md").read_text()
    assert text in printed
    assert "| labels | epochs | pre-trained | no pre-training | tf-idf" in text
    dash = "\N{EN DASH}"
    cell = f"{np.mean(found):.1f} ({found[0]:.1f}{dash}{found[1]:.1f})"
    assert f"| 200 | 3 | {cell} |" in text and "| 50 | 5 |" in text
    assert "Medians of 2 seeds" in text
    with open(out / "predictions" / "mrpc.csv", newline="") as file:
        kept = list(csv.DictReader(file))
    checked = 0
    for row in rows:
        name = f"{row['variant']}, {row['labels']} labels, seed {row['seed']}"
        if name in kept[0]:
            columns = ([float(each[column]) for each in kept] for column in ("label", name))
            assert recompute(row["metric"], *columns) == pytest.approx(float(row["score"]))
            checked += 1
    assert checked == 2 * 5 * 2  # sizes, variants and baselines, metrics

    fine_tuned[:] = []
    more = [*arguments, "--labels", "all", "--seeds", "1"]
    assert main(more) == 0
    assert "| 3,668 | 3 |" in (out / "learning_curve.md").read_text()
    assert "| 200 | 3 |" in (out / "learning_curve.md").read_text()


def test_runs_of_other_options_do_not_mix():
    def result(size, rate):
        options = {"preset": "p", "transfer": "all", "lm_coefficient": 0.5, "batch_size": 32}
        facts = {"task": "rte", "seed": 0, "score": 0.5, "decoder": "GPT1Backbone"}
        return {**options, **facts, "train_examples": size, "learning_rate": rate}

    assert list(by_size([(0, result(300, 1e-3)), (1, result(100, 1e-3))])) == [100, 300]
    with pytest.raises(ValueError, match="learning_rate: 0.001, 0.002"):
        by_size([(0, result(300, 1e-3)), (1, result(100, 2e-3))])


def test_errors_are_one_line(preset, tmp_path, tfds_dir, capsys):
    for arguments, message in (
        (["--tasks", "sst3"], "Unknown task 'sst3'"),
        (["--tasks", "rte", "--labels", "100,few"], "labels must be numbers above 0, or all. Rec"),
        (["--tasks", "rte", "--labels", "0"], "labels must be numbers above 0, or all. Rec"),
        (["--tasks", "rte", "--labels", "9000"], "rte has 2490 labels; expected a number below"),
        (["--tasks", "rte", "--seeds", "0"], "seeds must be at least 1"),
        (["--tasks", "rte", "--min-updates", "0"], "min_updates must be at least 1"),
        (["--tasks", "rte", "--preset", "nowhere"], "nowhere is not a preset"),
        (["--tasks", "qqp"], "The data set glue/qqp is not in"),
    ):
        arguments = ["--preset", preset, *arguments]
        assert main([*arguments, "--data-dir", tfds_dir, "--output", str(tmp_path / "out")]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()

"""The paper's tables with our results beside the published ones."""

import csv
import json
import statistics

import numpy as np
import pytest

from gpt1_keras.examples import Examples
from tests.helpers.recomputing import recompute
from training.datasets.paper_datasets import DATASETS
from training.evaluation.metrics import score
from training.evaluation.predictions import write_predictions
from training.paper.commands import report as main
from training.paper.gathered_results import Results, variant_of
from training.paper.published_results import TABLES
from training.paper.report import fill, report


def result(task, seed, value, **changes):
    options = {"preset": "p", "config": None, "transfer": "all", "lm_coefficient": 0.5}
    facts = {"best_epoch": 2, "metric": DATASETS[task].metrics[0], "decoder": "GPT1Backbone"}
    facts |= {"train_examples": 1000, "seconds": 1800.0}
    best = {"epoch": 2, "seconds": 900.0, **dict.fromkeys(DATASETS[task].metrics, value)}
    history = [{**best, "epoch": 1, DATASETS[task].metrics[0]: 0.0}, best]
    return {
        "task": task,
        "seed": seed,
        "score": value,
        "history": history,
        **options,
        **facts,
        **changes,
    }


@pytest.fixture
def write(tmp_path):
    def write(*results):
        for number, content in enumerate(results):
            path = tmp_path / "runs" / str(number) / "result.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content))
        return tmp_path / "runs"

    return write


ABLATION = (
    *(result("sst2", seed, score) for seed, score in enumerate((0.9, 0.8, 0.84))),
    *(result("cola", seed, score) for seed, score in enumerate((0.2, 0.3, 0.1))),
    result("sst2", 0, 0.7, transfer="none"),
    result("cola", 0, 0.0, transfer="none"),
    result("sst2", 0, 0.85, lm_coefficient=0.0),
    result("sst2", 0, 0.6, decoder="LSTMBackbone", preset="l"),
    result("sst2", 0, 0.5, transfer="2"),
)


def test_the_paper_s_tables():
    """Against the paper's own averages of table 5, and a few figures of the others."""
    columns = TABLES["table5"].columns
    averages = [
        statistics.mean(column.published[row] for column in columns)
        for row in TABLES["table5"].published
    ]
    assert averages == pytest.approx([74.7, 59.9, 75.0, 69.1], abs=0.07)
    assert [column.name for column in TABLES["table5"].beside] == [
        "MRPC", "SNLI, slice", "RACE-m", "DPRD"
    ]  # fmt: skip
    names = [[column.name for column in TABLES[f"table{i}"].columns] for i in (2, 3, 4)]
    assert names == [
        ["MNLI-m", "MNLI-mm", "SNLI", "SciTail", "QNLI", "RTE"],
        ["Story Cloze", "RACE-m", "RACE-h", "RACE"],
        ["CoLA", "SST-2", "MRPC", "STS-B", "QQP"],
    ]
    assert TABLES["table3"].columns[0].published == {
        "best before the paper": 77.6, "the paper": 86.5
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "variant"),
    [
        ({}, "full"),
        ({"lm_coefficient": 0.0}, "no auxiliary loss"),
        ({"transfer": "none"}, "no pre-training"),
        ({"preset": None, "config": "gpt1_tiny"}, "no pre-training"),
        ({"transfer": "3"}, "3 blocks"),
        ({"decoder": "LSTMBackbone"}, "LSTM"),
        ({"decoder": "LSTMBackbone", "lm_coefficient": 0.0}, "LSTM, no auxiliary loss"),
    ],
)
def test_variants(changes, variant):
    assert variant_of(result("rte", 0, 0.5, **changes)) == variant


def test_medians_over_seeds_and_missing_cells():
    results = Results([(str(i), content) for i, content in enumerate(ABLATION)])
    columns, rows = fill(TABLES["table5"], results)
    rows = {row.name: row for row in rows}
    full = dict(zip(columns, rows["ours, full"].scores))
    assert full["CoLA (matthews)"] == pytest.approx(20)
    assert full["SST-2 (accuracy)"] == pytest.approx(84)
    assert full["RTE (accuracy)"] is None
    assert rows["ours, full"].seeds[columns.index("SST-2 (accuracy)")] == 3
    # Only SST-2 has a score in every row of ours.
    assert columns[0] == "average of 1" and full["average of 1"] == pytest.approx(84)
    assert rows["the paper, LSTM"].scores[0] == 90.5


def test_small_models_of_others():
    """Their figures of this project's plan; and MNLI as the mean of both its splits."""
    columns, rows = fill(TABLES["table5"], Results([(0, result("mrpc", 0, 0.8))]))
    tiny, mini = (
        [row for row in rows if row.name == f"BERT-{size}"][0] for size in ("Tiny", "Mini")
    )
    for column, *expected in (
        ("SST-2 (accuracy)", 83.2, 85.9),
        ("MRPC (f1)", 81.1, 81.1),
        ("STS-B (pearson)", 74.3, 75.4),
        ("RTE (accuracy)", 57.2, 57.9),
        ("CoLA (matthews)", 0, 0),
        ("MNLI (accuracy)", 70.25, 74.55),
    ):
        index = columns.index(column)
        assert [tiny.scores[index], mini.scores[index]] == pytest.approx(expected)
    _, rows = fill(TABLES["table3"], Results([(0, result("race_middle", 0, 0.8))]))
    assert not [row for row in rows if row.name.startswith("BERT")]


def test_further_columns_and_metrics():
    """MRPC's accuracy too, and what the paper's table does not have, where there are results."""
    history = [{"epoch": 1, "f1": 0.8, "accuracy": 0.7}, {"epoch": 2, "f1": 0.79, "accuracy": 0.72}]
    found = [
        (0, result("mrpc", 0, 0.8, best_epoch=1, history=history)),
        (1, result("mrpc", 0, 0.75, baseline="majority", metrics={"f1": 0.75, "accuracy": 0.6})),
        (2, result("dprd", 0, 0.55)),
    ]
    columns, rows = fill(TABLES["table5"], Results(found))
    rows = {row.name: dict(zip(columns, row.scores)) for row in rows}
    assert columns[-2:] == ["MRPC (accuracy)", "DPRD (accuracy)"]
    assert rows["ours, full"]["MRPC (f1)"] == pytest.approx(80)
    assert rows["ours, full"]["MRPC (accuracy)"] == pytest.approx(70)
    assert rows["baseline: majority"]["MRPC (accuracy)"] == pytest.approx(60)
    assert rows["ours, full"]["DPRD (accuracy)"] == pytest.approx(55)
    assert rows["the paper, full"]["DPRD (accuracy)"] is None
    assert rows["BERT-Mini"]["MRPC (accuracy)"] == 71.8


def test_ranges_of_seeds():
    both = [
        result(f"mnli_{name}", seed, score)
        for name, scores in (("matched", (0.8, 0.6, 0.7)), ("mismatched", (0.7, 0.9, 0.5)))
        for seed, score in enumerate(scores)
    ]
    results = Results(list(enumerate(both)))
    # Seeds' means: 75, 75 and 60; medians: 70 and 70.
    assert results.extremes("full", ["mnli_matched", "mnli_mismatched"]) == pytest.approx((60, 75))
    columns, rows = fill(TABLES["table5"], results)
    assert rows[-1].cell(columns.index("MNLI (accuracy)")) == "70.0 (60.0\N{EN DASH}75.0)"
    assert Results([(0, both[0])]).extremes("full", ["mnli_matched"]) is None


def test_mnli_is_the_mean_of_both_its_splits():
    both = [result("mnli_matched", 0, 0.8), result("mnli_mismatched", 0, 0.7)]
    columns, rows = fill(TABLES["table5"], Results(list(enumerate(both))))
    index = columns.index("MNLI (accuracy)")
    assert rows[-1].scores[index] == pytest.approx(75)
    columns, rows = fill(TABLES["table5"], Results([(0, both[0])]))
    assert rows[-1].scores[columns.index("MNLI (accuracy)")] is None


def test_files(write, tmp_path, capsys):
    runs = write(*ABLATION, {"task": "sst2", "split": "test"}, {"steps": 5})
    assert main(["--runs", str(runs), "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "scores.csv", "table4.svg", "table5.svg", "tables.md"
    ]  # fmt: skip
    text = (tmp_path / "out" / "tables.md").read_text()
    assert text in printed
    assert "| the paper | 45.4 | 91.3 | 82.3 | 82.0 | 70.3 |" in text
    dash = "\N{EN DASH}"
    cells = f"20.0 (10.0{dash}30.0) | 84.0 (80.0{dash}90.0) | {dash} | {dash} | {dash}"
    assert f"| ours | {cells} |" in text
    assert "medians of 3 seeds" in text and "medians of 1 to 3 seeds" in text


def test_scores_can_be_computed_again_from_the_predictions(write, tmp_path):
    """By scikit-learn and SciPy, from what a report keeps of one seed."""
    random = np.random.default_rng(0)
    contents = []
    for task in ("cola", "mrpc", "stsb"):
        is_score = DATASETS[task].score_range is not None
        labels = (random.uniform(0, 5, 60) if is_score else random.integers(0, 2, 60)).astype("f4")
        labels = labels if is_score else labels.astype("i4")
        examples = Examples({}, labels, random.permutation(60))
        for seed in (0, 1):
            answers = random.permutation(labels) / 2 if is_score else random.integers(0, 2, 60)
            scores = score(examples, answers, DATASETS[task].metrics)
            best = {"epoch": 1, **scores}
            first = scores[DATASETS[task].metrics[0]]
            contents.append(result(task, seed, first, history=[best], best_epoch=1))
            write(*contents)
            write_predictions(tmp_path / "runs" / str(len(contents) - 1), examples, answers)
    report([tmp_path / "runs"], tmp_path / "out")
    with open(tmp_path / "out" / "scores.csv", newline="") as file:
        kept = {
            (row["task"], row["metric"]): float(row["score"])
            for row in csv.DictReader(file)
            if row["seed"] == "0"
        }
    assert len(kept) == 1 + 2 + 2
    for (task, metric), expected in kept.items():
        with open(tmp_path / "out" / "predictions" / f"{task}.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == ["number", "label", "full, 1000 labels, seed 0"]
        label, answer = (
            [float(row[name]) for row in rows] for name in ("label", "full, 1000 labels, seed 0")
        )
        assert recompute(metric, label, answer) == pytest.approx(expected, abs=1e-5)


def test_predictions_of_other_examples(write, tmp_path):
    write(result("cola", 0, 0.5), result("cola", 0, 0.5, transfer="none"))
    for number in range(2):
        examples = Examples({}, np.array([1, 0]), np.array([number, 5]))
        write_predictions(tmp_path / "runs" / str(number), examples, np.array([1, 1]))
    with pytest.raises(ValueError, match="cola.*number"):
        report([tmp_path / "runs"], tmp_path / "out")
    (tmp_path / "runs" / "1" / "predictions.jsonl").write_text('{"number": 1}\n')
    with pytest.raises(ValueError, match="1/predictions.jsonl.*number, label"):
        report([tmp_path / "runs"], tmp_path / "out")


def test_what_cannot_be_told_apart(write, tmp_path):
    twice = write(result("sst2", 0, 0.9), result("sst2", 0, 0.8))
    with pytest.raises(ValueError, match="full, sst2, seed 0: .*0/result.*1/result"):
        report([twice], tmp_path / "out")
    mixed = write(result("sst2", 0, 0.9), result("sst2", 1, 0.8, preset="q"))
    with pytest.raises(ValueError, match="models: p, q"):
        report([mixed], tmp_path / "out")
    weights = [{"preset_fingerprint": each} for each in "ab"]
    mixed = write(result("sst2", 0, 0.9, **weights[0]), result("sst2", 1, 0.8, **weights[1]))
    with pytest.raises(ValueError, match=r"p \(weights a\), p \(weights b\)"):
        report([mixed], tmp_path / "out")
    mixed = write(result("sst2", 0, 0.9), result("sst2", 0, 0.8, transfer="none", dropout=0.1))
    with pytest.raises(ValueError, match="dropout: None.*0.1"):
        report([mixed], tmp_path / "out")


def test_nothing_to_report(tmp_path, capsys):
    assert main(["--runs", str(tmp_path), "--output", str(tmp_path / "out")]) == 1
    assert "No results of gpt1 finetune in" in capsys.readouterr().err


@pytest.mark.parametrize("changes", [{"limit_examples": 99}, {"epochs": 9}, {"batch_size": 1}])
def test_runs_of_different_limits_are_not_mixed(changes):
    [name] = changes
    other = result("sst2", 1, 0.5, lm_coefficient=0.0, **changes)
    with pytest.raises(ValueError, match=rf"sst2 differ in {name}: None in a"):
        Results([("a", result("sst2", 0, 0.5)), ("b", other)])
    Results([("a", result("sst2", 0, 0.5)), ("b", other | {"task": "cola"})])


def test_tables_tell_which_runs_were_limited(write, tmp_path):
    runs = write(result("sst2", 0, 0.5, limit_examples=1000), result("qqp", 0, 0.5))
    text = report([runs], tmp_path / "out")
    assert "Ours were trained on some of the examples: SST-2 on 1,000.\n" in text

"""The paper's tables with our results beside."""

import csv
import json
import statistics

import pytest

from training.datasets.tasks import TASKS
from training.paper.published_results import TABLES
from training.paper.results import Results, variant_of
from training.paper.tables import fill
from training.report import main, report


def result(task, seed, score, **changes):
    options = {"preset": "p", "config": None, "transfer": "all", "lm_coefficient": 0.5}
    facts = {"best_epoch": 2, "metric": TASKS[task].metrics[0], "decoder": "GPT1Backbone"}
    return {"task": task, "seed": seed, "score": score, **options, **facts, **changes}


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
        "table4.csv", "table4.svg", "table5.csv", "table5.svg", "tables.md"
    ]  # fmt: skip
    text = (tmp_path / "out" / "tables.md").read_text()
    assert text in printed
    assert "| the paper | 45.4 | 91.3 | 82.3 | 82.0 | 70.3 |" in text
    assert "| ours | 20.0 | 84.0 | \N{EN DASH} | \N{EN DASH} | \N{EN DASH} |" in text
    assert "medians of 3 seeds" in text and "medians of 1 to 3 seeds" in text
    with open(tmp_path / "out" / "table4.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    ours = [row for row in rows if row["row"] == "ours"]
    assert [(row["score"], row["seeds"]) for row in ours] == [("20.00", "3"), ("84.00", "3")]
    assert len(rows) == 12


def test_what_cannot_be_told_apart(write, tmp_path):
    twice = write(result("sst2", 0, 0.9), result("sst2", 0, 0.8))
    with pytest.raises(ValueError, match=r"Two results of full, sst2, seed 0: .*0/result.*1/resul"):
        report([twice], tmp_path / "out")
    mixed = write(result("sst2", 0, 0.9), result("sst2", 1, 0.8, preset="q"))
    with pytest.raises(ValueError, match="The runs of full began from several models"):
        report([mixed], tmp_path / "out")


def test_nothing_to_report(tmp_path, capsys):
    assert main(["--runs", str(tmp_path), "--output", str(tmp_path / "out")]) == 1
    assert "No results of training.finetune or training.baselines in" in capsys.readouterr().err

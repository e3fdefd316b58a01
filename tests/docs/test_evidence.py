"""The scores on the page follow from the kept files: from predictions, and over seeds."""

import csv
import itertools
import json
import operator
import pathlib
import statistics

import pytest

from tests.helpers.recomputing import recompute
from training.datasets.paper_datasets import DATASETS

DOCS = pathlib.Path(__file__).parents[2] / "docs"
KEPT = sorted((DOCS / "evidence").glob("*/scores.csv"))
RESULTS = (DOCS / "results.md").read_text()
TABLES = (RESULTS + (DOCS / "ablations.md").read_text()).replace("**", "")
IN_HUNDREDTHS = 100


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def name_of(row):
    return f"{row['variant']}, {row['labels']} labels, seed {row['seed']}"


def assert_shown(rows, *cells):
    """The tables have the median and the range of each cell's scores."""
    by_cell = operator.itemgetter(*cells)
    for cell, runs in itertools.groupby(sorted(rows, key=by_cell), by_cell):
        scores = [IN_HUNDREDTHS * float(row["score"]) for row in runs]
        shown = f"{statistics.median(scores):.1f}"
        if f"{max(scores):.1f}" > f"{min(scores):.1f}":
            shown += f" ({min(scores):.1f}\N{EN DASH}{max(scores):.1f})"
        assert f"| {shown} " in TABLES, cell


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_scores_follow_from_the_answers(path):
    scores = read(path)
    checked = set()
    for task in {row["task"] for row in scores}:
        answers = read(path.parent / "predictions" / f"{task}.csv")
        labels = [float(row["label"]) for row in answers]
        for row in scores:
            name = name_of(row)
            if row["task"] == task and name in answers[0]:
                found = recompute(row["metric"], labels, [float(each[name]) for each in answers])
                assert found == pytest.approx(float(row["score"]), abs=1e-5), name
                checked.add((task, row["variant"], row["labels"]))
    # One seed of each is kept.
    assert checked == {(row["task"], row["variant"], row["labels"]) for row in scores}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_a_page_shows_their_medians_and_ranges(path):
    """Of each task's first metric, which is what all tables have."""
    rows = [row for row in read(path) if row["metric"] == DATASETS[row["task"]].metrics[0]]
    assert_shown(rows, "task", "variant", "labels")


def test_the_page_shows_the_scores_of_version_4():
    page = RESULTS.replace("**", "")
    runs = json.loads((DOCS / "evidence" / "version_4" / "scores.json").read_text())
    by_cell = operator.itemgetter("task", "weights", "rate")
    for cell, seeds in itertools.groupby(runs, by_cell):
        scores = [max(run["epochs"]) for run in seeds]
        assert len(scores) == 3
        if cell[1] == "version 4" or cell[2] == 2e-4:
            median = f"{statistics.median(scores):.1f}"
            shown = f"({min(scores):.1f}\N{EN DASH}{max(scores):.1f})"
            assert f"| {median} {shown} " in page, cell


def test_the_page_shows_fasttext_s_scores():
    assert_shown(
        json.loads((DOCS / "evidence" / "fasttext" / "scores.json").read_text()), "task", "labels"
    )


def test_the_page_shows_the_pairs_that_nobody_tuned_to():
    assert_shown(
        json.loads((DOCS / "evidence" / "question_sentences" / "scores.json").read_text()), "model"
    )


def test_the_page_shows_what_the_probes_found():
    folder = DOCS / "evidence" / "probes"
    probes, page = (
        json.loads((folder / "scores.json").read_text()),
        (folder / "README.md").read_text(),
    )
    for question, by_weights in probes.items():
        for name, scores in by_weights.items():
            cells = " | ".join(f"{score:.1f}" for score in scores.values())
            assert f"| {name} | {cells} |" in page, (question, name)


def test_there_is_evidence():
    assert KEPT

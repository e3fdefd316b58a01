"""Fine-tuned models on whole splits and on users' files: scores, predictions, GLUE's files."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import sklearn.metrics

from tests.helpers.eager import eagerly
from training.datasets.data_options import DataOptions, ExampleOptions
from training.evaluate import main
from training.evaluation.fine_tuned_models import load_model
from training.evaluation.preset_evaluation import evaluate
from training.runs.finetune_options import FinetuneOptions
from training.runs.finetuning import finetune, training_examples_of

pytestmark = pytest.mark.slow

WORDS = ("good", "kind", "lovely", "dull", "bad", "film")
FAST = {
    "config": "gpt1_micro",
    "num_merges": 40,
    "epochs": 1,
    "batch_size": 8,
    "lm_coefficient": 0.0,
}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("evaluate")


def run(folder, name, rows):
    """A model trained for a moment on a file of these rows."""
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = FinetuneOptions(train=str(path), validation=str(path), **FAST)
    with eagerly():
        result = finetune(options, folder / name)
    return path, str(folder / name / "best"), result


@pytest.fixture(scope="module")
def pairs(folder):
    rows = [
        {"text1": a, "text2": f"{b} film", "label": (i + j) / 2}
        for i, a in enumerate(WORDS)
        for j, b in enumerate(WORDS[:3])
    ]
    return run(folder, "pairs", rows)


@pytest.fixture(scope="module")
def choices(folder):
    rows = [
        {"context": a, "question": "which film", "choices": WORDS[: 2 + i % 3], "label": i % 2}
        for i, a in enumerate(WORDS * 2)
    ]
    return run(folder, "choices", rows)


@pytest.fixture(scope="module")
def mrpc(folder, made_up_tfds):
    """A model of the task, its made-up data, and the rows of its validation split."""
    rows = [
        {"sentence1": a, "sentence2": "film", "label": i % 2, "idx": 10 - i}
        for i, a in enumerate(WORDS)
    ]
    unlabelled = [{**row, "label": -1} for row in rows]
    splits = {"train": rows, "validation": rows, "test": unlabelled}
    data_dir = made_up_tfds("glue/mrpc", splits)
    with eagerly():
        result = finetune(FinetuneOptions("mrpc", **FAST), folder / "mrpc", DataOptions(data_dir))
    return str(folder / "mrpc" / "best"), data_dir, rows, result


def test_scores_of_pairs(pairs, tmp_path):
    path, best, trained = pairs
    model, _ = load_model(best)
    rows = lines(path)
    texts = [row["text1"] for row in rows], [row["text2"] for row in rows]
    expected = model.predict(texts, verbose=0)
    labels = [row["label"] for row in rows]
    result = evaluate(best, tmp_path, ExampleOptions(file=path))
    assert result == json.loads((tmp_path / "result.json").read_text())
    assert (result["examples"], result["labelled"]) == (18, 18)
    metrics = result["metrics"]
    assert metrics["pearson"] == pytest.approx(
        scipy.stats.pearsonr(labels, expected).statistic, abs=1e-4
    )
    assert metrics["pearson"] == pytest.approx(trained["score"], abs=1e-4)
    assert set(metrics) == {"pearson", "spearman"}
    answers = [line["answer"] for line in lines(tmp_path / "predictions.jsonl")]
    np.testing.assert_allclose(answers, expected, atol=1e-5)


def test_choices(choices, tmp_path):
    path, best, trained = choices
    result = evaluate(best, tmp_path, ExampleOptions(file=path))
    assert result["metrics"] == {"accuracy": trained["score"]}
    predictions = lines(tmp_path / "predictions.jsonl")
    found = np.mean([line["answer"] == line["label"] for line in predictions])
    assert found == pytest.approx(trained["score"])
    rows = lines(path)
    assert all(line["answer"] < len(rows[line["number"]]["choices"]) for line in predictions)


def test_glue_s_file_and_its_metrics(mrpc, tmp_path):
    best, data_dir, rows, trained = mrpc
    result = evaluate(best, tmp_path, ExampleOptions("mrpc"), DataOptions(data_dir))
    assert result["metrics"]["f1"] == pytest.approx(trained["score"])
    lines_of_file = (tmp_path / "MRPC.tsv").read_text().splitlines()
    assert lines_of_file[0] == "index\tprediction"
    numbers, answers = zip(*[map(int, line.split("\t")) for line in lines_of_file[1:]])
    assert numbers == (5, 6, 7, 8, 9, 10)
    labels = [row["label"] for row in rows[::-1]]
    assert result["metrics"]["accuracy"] == sklearn.metrics.accuracy_score(labels, answers)
    assert result["metrics"]["f1"] == sklearn.metrics.f1_score(labels, answers)


def test_the_program_prints_what_a_score_is_worth(pairs, choices, tmp_path, capsys):
    for (path, best, trained), last in ((pairs, "largest error: "), (choices, " are right")):
        assert main(["--model", best, "--file", str(path), "--output", str(tmp_path)]) == 0
        printed = capsys.readouterr().out
        metric = trained["metric"]
        assert f"\n{metric}: {trained['score']:.4f}\n" in printed
        assert re.search(rf"^{metric}  this model +{trained['score']:.4f}$", printed, re.MULTILINE)
        assert re.search(rf"^{metric}  word overlap +\d\.\d{{4}}$", printed, re.MULTILINE)
        assert last in printed
        # The same examples as those that the run was validated on.
        result = json.loads((tmp_path / "result.json").read_text())
        assert result["baselines"] == trained["baselines"]
        ours, theirs = (
            pd.read_csv(folder / "errors.csv").number for folder in (tmp_path, Path(best).parent)
        )
        assert set(ours) == set(theirs)


def test_training_data_that_are_gone_or_others(pairs, tmp_path, capsys):
    path, best, trained = pairs
    shutil.copytree(best, tmp_path / "best")
    output = str(tmp_path / "out")
    assert main(["--model", f"{tmp_path}/best", "--file", str(path), "--output", output]) == 0
    printed = capsys.readouterr()
    assert "warning: No baselines, as what the model has learned from was not found" in printed.err
    assert "pearson: " in printed.out and "this model" not in printed.out
    data = trained["data_fingerprint"] | {"training": {"examples": 99, "texts": "", "labels": ""}}
    (tmp_path / "result.json").write_text(json.dumps(trained | {"data_fingerprint": data}))
    assert training_examples_of(tmp_path / "best", DataOptions()) is None
    assert "it had 99 training examples, and there are 18." in capsys.readouterr().err


def test_a_split_without_labels(mrpc, tmp_path):
    best, data_dir, _, _ = mrpc
    result = evaluate(best, tmp_path, ExampleOptions("mrpc", split="test"), DataOptions(data_dir))
    assert "metrics" not in result and result["labelled"] == 0
    assert {line["label"] for line in lines(tmp_path / "predictions.jsonl")} == {None}
    assert len((tmp_path / "MRPC.tsv").read_text().splitlines()) == 7


def test_errors_are_one_line(mrpc, pairs, choices, tfds_dir, tmp_path, capsys):
    best, data_dir = mrpc[:2]
    for arguments, message in (
        (["--model", best], "Give either --task or --file"),
        (["--model", str(tmp_path), "--task", "mrpc"], "is not a preset: neither one that ships"),
        (["--model", best, "--task", "sst2", "--data-dir", tfds_dir],
         "is for similarity; the task has classification"),
        (["--model", pairs[1], "--task", "mrpc", "--data-dir", data_dir],
         "has the classes None; the task has ['not_equivalent', 'equivalent']"),
        (["--model", choices[1], "--file", str(pairs[0])],
         "; expected context, question, choices, label. Say which are meant: --columns"),
    ):  # fmt: skip
        assert main([*arguments, "--output", str(tmp_path / "out")]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()

"""Next month's rows: a classifier goes on with its classes, and is compared with the one before."""

import csv
import json
import math

import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.files import digest_of
from gpt1_keras.presets import load_task
from gpt1_keras.tasks.heads import Calibration
from tests.helpers.eager import eagerly
from training import evaluate, finetune
from training.datasets.labelled_examples import load_examples
from training.evaluation.comparison import compare
from training.runs.earlier_classifier import sure_precision
from training.runs.finetune_options import FinetuneOptions
from training.runs.finetuning import build_model, find_dataset_of

JUNE = [
    *((f"the bill is wrong {n}", "Bill") for n in range(8)),
    *((f"the staff were kind {n}", "praise") for n in range(8)),
]
HELD_BACK = [("the bill is wrong 3", "Bill"), ("the staff were kind 5", "praise")]
JULY = [
    *((f"a wrong bill {n}", "bill") for n in range(6)),
    *((f"where is it {n}", "Delivery") for n in range(6)),
    ("the staff were kind 5", "Bill"),  # held back before
    ("the staff were kind 6", "Bill"),  # learned from before
]


def write(path, rows, names=("text", "label")):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return str(path)


@pytest.fixture
def make_run(tiny_backbone, tiny_tokenizer, tmp_path):
    """Makes a folder as `gpt1 finetune` leaves it; the head has random weights."""

    def make(class_names=("Bill", "praise"), files=True, **arguments):
        folder = tmp_path / "runs" / "june"
        folder.mkdir(parents=True)
        june = write(tmp_path / "june.csv", JUNE)
        model = gpt1_keras.GPT1TextClassifier(
            tiny_backbone,
            preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, 16),
            class_names=list(class_names),
            **arguments,
        )
        for weight in model.head.weights:
            weight.assign(np.random.default_rng(0).normal(size=weight.shape))
        model.save_to_preset(str(folder / "best"))
        recorded = {june: digest_of(june)} if files else None
        (folder / "result.json").write_text(json.dumps({"train": [june], "files": recorded}))
        lines = [json.dumps({"text": text, "label": label}) for text, label in HELD_BACK]
        (folder / "validation.jsonl").write_text("\n".join(lines) + "\n")
        return folder

    return make


def dataset_of(train, run, **options):
    told = []
    dataset = find_dataset_of(FinetuneOptions(train=train, preset=str(run), **options), told.append)
    return dataset, " ".join(told)


def rows_of(dataset, role):
    found = load_examples(dataset, role)
    names = [found.class_names[label] for label in found.labels]
    return [(text.decode(), name) for text, name in zip(found.texts["text"], names)]


def test_its_classes_and_its_rows_come_first(make_run, tmp_path):
    run = make_run()
    dataset, told = dataset_of(write(tmp_path / "july.csv", JULY), run)
    assert dataset.class_names == ["Bill", "praise", "Delivery"]
    assert "no ['praise'], which stay" in told and "['Delivery'] are new" in told
    assert "learns again from" in told and "june.csv" in told
    train, held_back = rows_of(dataset, "train"), rows_of(dataset, "validation")
    assert set(JUNE) - set(HELD_BACK) <= set(train) and set(HELD_BACK) <= set(held_back)
    assert not {text for text, _ in train} & {text for text, _ in held_back}
    july = {(text, "Bill" if label == "bill" else label) for text, label in JULY}
    assert {*train, *held_back} == {*JUNE, *july}
    assert {label for _, label in held_back} == {"Bill", "praise", "Delivery"}
    # The same files, given by hand, are the same data.
    by_hand, _ = dataset_of([str(tmp_path / "june.csv"), str(tmp_path / "july.csv")], run)
    assert rows_of(by_hand, "train") == train and rows_of(by_hand, "validation") == held_back


@pytest.mark.parametrize("name", ["columns", "usual_columns"])  # its own, or of a run before it
def test_its_columns_are_usual(make_run, tmp_path, name):
    run = make_run()
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, name: "text=Message,label=Class"}))
    dataset, _ = dataset_of(write(tmp_path / "july.csv", JULY, ("Message", "Class")), run)
    assert dataset.class_names == ["Bill", "praise", "Delivery"]
    assert len(rows_of(dataset, "train")) + len(rows_of(dataset, "validation")) == 30


def test_its_head_goes_on(make_run, tmp_path):
    run = make_run(dropout=0.0)
    july = write(tmp_path / "july.csv", JULY)
    options = FinetuneOptions(train=july, preset=str(run))
    dataset = find_dataset_of(options)
    model = build_model(options, dataset, load_examples(dataset, "train"))
    before = load_task(run)
    assert model.class_names == ["Bill", "praise", "Delivery"]
    texts = [text for text, _ in JULY]
    expected = before.predict_on_batch(texts)
    np.testing.assert_allclose(model.predict_on_batch(texts)[:, :2], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("classes", "rows", "options", "told"),
    [
        (("a", "b"), JULY, {}, "none is shared"),
        (("1", "2"), [(f"t{n}", str(1 + n % 2)) for n in range(8)], {}, "numbers"),
        (("Bill", "praise"), JULY, {"fresh_head": True}, ""),
        (("Bill", "praise"), JULY, {"transfer": "1"}, ""),
    ],
)
def test_another_task_starts_afresh(make_run, tmp_path, classes, rows, options, told):
    dataset, found = dataset_of(write(tmp_path / "july.csv", rows), make_run(classes), **options)
    assert dataset.earlier is None
    names = {"Delivery", "bill"} if rows is JULY else {"1", "2"}  # of two spellings, the usual one
    assert set(dataset.class_names) == names
    assert told in found and ("afresh" in found) == bool(told)


def test_a_model_of_several_labels_starts_afresh(make_run, tmp_path):
    run = make_run(activation="sigmoid")
    dataset, _ = dataset_of(write(tmp_path / "july.csv", JULY), run)
    assert dataset.earlier is None


@pytest.mark.parametrize("change", ["missing", "changed", "unknown"])
def test_rows_that_are_not_found_are_told(make_run, tmp_path, change):
    run = make_run(files=change != "unknown")
    june = tmp_path / "june.csv"
    if change == "missing":
        june.unlink()
    elif change == "changed":
        write(june, JUNE[:-1])
    dataset, told = dataset_of(write(tmp_path / "july.csv", JULY), run)
    assert dataset.class_names == ["Bill", "praise", "Delivery"] and not dataset.earlier.train
    assert "forget" in told and ("june.csv" in told) == (change != "unknown")


@pytest.mark.parametrize("known", [True, False])
def test_the_precision_of_sure_answers(make_run, known, capsys):
    run = make_run(temperature=2.0, sure_threshold=0.9)
    if known:
        (run / "calibration.json").write_text('{"sure": {"precision": 0.8}}')
    assert sure_precision(str(run)) == (0.8 if known else None)
    assert ("is_sure" in capsys.readouterr().err) != known
    assert load_task(run).calibration == Calibration(2.0, 0.9)


@pytest.mark.slow
def test_two_months_through_the_programs(tmp_path, capsys):
    june = write(tmp_path / "june.csv", JUNE, ("Message", "Class"))
    july = write(tmp_path / "july.csv", JULY, ("Message", "Class"))
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    model = ["--config", "gpt1_micro", "--num-merges", "10", "--epochs", "2", "--columns"]
    with eagerly():
        train = ["--train", june, *model, "text=Message,label=Class"]
        assert finetune.main([*train, "--output", first]) == 0
        train = ["--train", july, "--preset", first, "--epochs", "1", "--output", second]
        assert finetune.main(train) == 0
        assert finetune.main(train) == 0  # it is done already
        result = json.loads((tmp_path / "second" / "result.json").read_text())
        assert result["class_names"] == ["Bill", "praise", "Delivery"]
        assert [path.rpartition("/")[2] for path in result["files"]] == ["june.csv", "july.csv"]
        capsys.readouterr()
        scores = str(tmp_path / "scores")
        asked = ["--file", july, "--model", second, "--beside", first, "--output", scores]
        assert evaluate.main(asked) == 0
    assert "McNemar" in capsys.readouterr().out
    compared = json.loads((tmp_path / "scores" / "result.json").read_text())["compared"]
    assert compared["unknown"] == ["Delivery"]
    with open(tmp_path / "scores" / "changed.csv", encoding="utf-8-sig", newline="") as file:
        changed = list(csv.DictReader(file))
    assert len(changed) == compared["changed"]
    assert all(row["prediction"] != row["beside"] for row in changed)


def test_comparing(make_run, tmp_path, monkeypatch):
    """McNemar's exact test: of answers that one model alone has right, a coin decides whose."""
    run = make_run()
    model = load_task(run)
    rows = [(f"text {n}", "Bill") for n in range(30)]
    dataset, _ = dataset_of(write(tmp_path / "a.csv", [*rows, ("x", "praise")]), run)
    examples = load_examples(dataset, "train")
    examples = examples.take(np.flatnonzero(examples.labels == 0)[:20])
    before = np.array([0] * 6 + [1] * 14)
    now = np.array([0] * 4 + [1] * 2 + [0] * 9 + [1] * 5)
    logits = np.eye(2)[before]
    monkeypatch.setattr("training.evaluation.comparison.predict_outputs", lambda *_: logits)
    found = compare(model, now, examples, run, tmp_path)
    assert found["accuracy"] == [6 / 20, 13 / 20]
    assert (found["changed"], found["now_right"], found["now_wrong"]) == (11, 9, 2)
    expected = 2 * sum(math.comb(11, k) for k in range(3)) / 2**11
    assert found["p_value"] == pytest.approx(expected)
    assert found["unknown"] == []

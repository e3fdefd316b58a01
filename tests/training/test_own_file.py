"""From a spreadsheet to a score: files as people have them, through the programs."""

import csv
import json
import types

import numpy as np
import pandas as pd
import pytest

import gpt1_keras
from gpt1_keras.examples import Examples
from gpt1_keras.labelled_files import parse_columns
from gpt1_keras.presets import load_tokenizer
from tests.helpers.eager import eagerly
from training import evaluate, finetune
from training.datasets.labelled_examples import load_examples
from training.datasets.user_files import find_user_files
from training.runs.finetune_options import FinetuneOptions
from training.runs.finetuning import tell_of_texts

ROWS = [
    *((f"Schöner Film; Größe {n}", "positiv") for n in range(12)),
    *((f"öde,\nund {n}", "negativ") for n in range(6)),
    *((f'mäßig "{n}"', "neutral") for n in range(3)),
]
COLUMNS = ["--columns", "text=Kommentar,label=Stimmung"]


@pytest.fixture(params=["excel.csv", "excel.xlsx", "utf16.csv"])
def spreadsheet(request, tmp_path):
    """The same table as Excel saves it: with blank rows, and columns without names."""
    path = tmp_path / request.param
    frame = pd.DataFrame(ROWS[:5] + [(None, None)] + ROWS[5:], columns=["Kommentar", "Stimmung"])
    if path.suffix == ".xlsx":
        frame.to_excel(path, index=False)
    elif path.stem == "utf16":
        frame.to_csv(path, sep=";", encoding="utf-16", index=False)
    else:
        with open(path, "w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file, delimiter=";")
            writer.writerow(["Kommentar", "Stimmung", "", ""])
            writer.writerows([*row, "", ""] for row in frame.fillna("").values)
    return path


def test_a_spreadsheet_is_read_with_one_option(spreadsheet):
    dataset = find_user_files(spreadsheet, None, {"columns": parse_columns(COLUMNS[1])})
    found = [load_examples(dataset, role) for role in ("train", "validation")]
    assert [len(each) for each in found] == [17, 4]
    rows = {
        (text.decode(), dataset.class_names[label])
        for each in found
        for text, label in zip(each.texts["text"], each.labels)
    }
    assert rows == set(ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("spreadsheet", ["excel.csv"], indirect=True)
def test_a_spreadsheet_is_learned_from_with_one_option(spreadsheet, tmp_path, capsys):
    run, scores = tmp_path / "run", tmp_path / "scores"
    model = ["--config", "gpt1_micro", "--num-merges", "10", "--epochs", "1"]
    with eagerly():
        assert (
            finetune.main(["--train", str(spreadsheet), *COLUMNS, *model, "--output", str(run)])
            == 0
        )
        told = capsys.readouterr().err
        assert "1 blank row is skipped" in told and "4 of 21 examples" in told
        best = ["--model", str(run / "best"), "--output", str(scores)]
        assert evaluate.main([*best, "--file", str(run / "validation.jsonl")]) == 0
        result, again = (json.loads((each / "result.json").read_text()) for each in (run, scores))
        assert again["metrics"]["accuracy"] == result["score"]
        assert (result["train_examples"], result["validation_examples"]) == (17, 4)
        assert result["class_names"] == ["negativ", "neutral", "positiv"]
        assert evaluate.main([*best, "--file", str(spreadsheet), *COLUMNS]) == 0
    assert json.loads((scores / "result.json").read_text())["examples"] == 21
    kept = [json.loads(line) for line in (run / "validation.jsonl").read_text().splitlines()]
    assert {(row["text"], row["label"]) for row in kept} <= set(ROWS)
    assert {row["label"] for row in kept} == {"positiv", "negativ", "neutral"}
    card = (run / "best" / "README.md").read_text(encoding="utf-8")
    assert f"{spreadsheet.name}, validated on a share" in card


def test_columns_without_the_option(spreadsheet, tmp_path, capsys):
    arguments = ["--train", str(spreadsheet), "--config", "gpt1_micro", "--output", str(tmp_path)]
    assert finetune.main(arguments) == 1
    error = capsys.readouterr().err
    assert "has the columns ['Kommentar', 'Stimmung'" in error
    assert "--columns text=COLUMN,label=COLUMN" in error


def test_long_and_foreign_texts_are_told(capsys):
    """Before the first update: of every file the cut ones, of a preset's what is no English."""
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(load_tokenizer("gpt1_tiny_books"), 12)
    model = types.SimpleNamespace(preprocessor=preprocessor, windows=1)

    def tell(texts, cut):
        is_cut = np.arange(len(texts)) < cut
        lengths = np.where(is_cut, 40, 9)
        tell_of_texts(options, Examples({"text": texts}), model, lengths, is_cut)

    german = [f"Guten Tag, wann wird meine Bestellung {n} endlich geliefert?" for n in range(4)]
    english = ["Where is my parcel? It was sent to me a week ago."] * 6
    for texts, preset, told in (
        ([*german, *english], "gpt1_tiny_books", "about 4 of 10 texts do not look like English"),
        ([*german[:3], *english], "gpt1_tiny_books", None),
        (german, None, None),  # whose tokenizer was learned from them
    ):
        options = FinetuneOptions(
            train=("juni.xlsx",), preset=preset, config=None if preset else "gpt1_micro"
        )
        tell(texts, cut=2)
        cut, *others = capsys.readouterr().err.splitlines()
        assert f"juni.xlsx: 2 of {len(texts)} training examples are longer than the 12" in cut
        assert "lose their end" in cut
        assert [told in other for other in others] == [True] * bool(told)
    tell(german, cut=0)
    assert capsys.readouterr().err == ""
    model.windows = 3
    tell(german, cut=1)
    in_windows, cut = capsys.readouterr().err.splitlines()
    assert "1 of 4 training examples are longer than the 12 tokens" in in_windows
    assert "up to 3" in in_windows and "longer than 3 times the 12 tokens" in cut

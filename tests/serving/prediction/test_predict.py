"""`serving.predict` answers every row of a table, by an export as by a preset."""

import csv
import functools
import json
import pathlib
import re

import keras
import numpy as np
import pandas as pd
import pytest

import gpt1_keras
from gpt1_keras.presets import load_task
from serving.export import export
from serving.export.export_options import Batching, Explanation
from serving.predict import main
from serving.prediction import row_model
from serving.prediction.input_files import InputFiles

SAVED = pathlib.Path(__file__).parents[2] / "gpt1_keras" / "presets" / "saved_models"
TEXTS = ["a good film", 'schön; and "kind"', "the staff\nwere kind", "bad", "a", "film, bad"]


@pytest.fixture(scope="module", autouse=True)
def opened_once():
    """Opens each model once for all tests, as graphs take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_model, "open_model", functools.cache(row_model.open_model))
        yield


@pytest.fixture(scope="module")
def preset(calibrated_classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("preset")
    calibrated_classifier.save_to_preset(str(folder))
    return str(folder)


@pytest.fixture(scope="module")
def exported(calibrated_classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    (folder / "1").mkdir()  # the newest version is taken
    export(calibrated_classifier, folder, explain=Explanation(), batching=Batching(2, max_queue=1))
    return str(folder)


@pytest.fixture(scope="module")
def expected(calibrated_classifier):
    return calibrated_classifier.classify(pd.Series(TEXTS))


def predict(model, source, output, *options):
    assert main(["--model", model, "--input", str(source), "--output", str(output), *options]) == 0


def compare(found, expected):
    assert list(found["label"]) == list(expected["label"])
    for name in ("score", "score_bad", "score_good"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
    assert list(found["is_sure"]) == list(expected["is_sure"])


@pytest.mark.slow
def test_every_column_and_the_answers(exported, expected, tmp_path, capsys):
    table = pd.DataFrame({"id": range(6), "Comment": TEXTS, "score": "x"})
    table.to_csv(tmp_path / "new.csv", index=False, sep=";", encoding="utf-8-sig")
    predict(exported, tmp_path / "new.csv", tmp_path / "answers.csv")
    with open(tmp_path / "answers.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    answers = ["label", "score", "score_bad", "score_good", "is_sure"]
    names = [f"predicted_{name}" for name in answers]
    assert list(rows[0]) == ["id", "Comment", "score", *names]
    assert [row["Comment"] for row in rows] == TEXTS
    found = pd.DataFrame({name: [row[f"predicted_{name}"] for row in rows] for name in answers})
    found[answers[1:-1]] = found[answers[1:-1]].astype(float)
    compare(found.assign(is_sure=found.is_sure == "true"), expected)
    said = capsys.readouterr().out
    assert "takes text from 'Comment'" in said
    assert "columns begin with predicted_" in said
    assert "6 answers" in said


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_formats(preset, expected, tmp_path, suffix):
    """Each is read and written; missing texts have missing answers."""
    texts = [*TEXTS, None]
    table = pd.DataFrame({"text": texts, "number": range(7), "part": [0.5] * 6 + [None]})
    source, output = tmp_path / f"new{suffix}", tmp_path / f"answers{suffix}"
    separator = {".csv": ",", ".tsv": "\t"}.get(suffix)
    if separator:
        table.to_csv(source, index=False, sep=separator)
    elif suffix == ".jsonl":
        table.to_json(source, orient="records", lines=True)
    else:
        table.to_parquet(source)
    predict(preset, source, output)
    if separator:
        found = pd.read_csv(output, sep=separator)
    elif suffix == ".jsonl":
        found = pd.DataFrame(map(json.loads, output.read_text(encoding="utf-8").splitlines()))
    else:
        found = pd.read_parquet(output)
    pd.testing.assert_frame_equal(found[list(table)], table, check_dtype=False)
    assert found.iloc[6, 3:].isna().all()
    compare(found.iloc[:6], expected)


@pytest.mark.slow
def test_explain(exported, preset, tmp_path):
    (tmp_path / "new.jsonl").write_text('{"text": "a good film"}\n{"text": "bad"}\n')
    answers = {}
    for name, model in {"export": exported, "preset": preset}.items():
        predict(model, tmp_path / "new.jsonl", tmp_path / f"{name}.jsonl", "--explain")
        lines = (tmp_path / f"{name}.jsonl").read_text().splitlines()
        answers[name] = [json.loads(line) for line in lines]
        assert [answer["words"] for answer in answers[name]] == [["a", "good", "film"], ["bad"]]
    for mine, other in zip(answers["export"], answers["preset"]):
        np.testing.assert_allclose(mine["word_shares"], other["word_shares"], atol=1e-5)


@pytest.mark.slow
def test_choices(tmp_path):
    chooser = load_task(SAVED / "chooser")
    path = tmp_path / "new.csv"
    path.write_text(
        "context,question,choice1,choice2,choice3\nThe sun.,What?,It rained.,Fine.,Snow.\n"
        "Rain.,Why?,Yes.,No.,\nRain.,Why?,,,\n"
    )
    predict(str(SAVED / "chooser"), path, tmp_path / "answers.csv")
    found = pd.read_csv(tmp_path / "answers.csv")
    assert list(found)[:5] == ["context", "question", "choice1", "choice2", "choice3"]
    texts = (
        ["The sun.", "Rain."],
        ["What?", "Why?"],
        [["It rained.", "Fine.", "Snow."], ["Yes.", "No."]],
    )
    for (_, row), answer in zip(found.iloc[:2].iterrows(), chooser.classify(texts)):
        assert row["label"] == answer["label"]
        assert row["choice"] == answer["choice"]
        np.testing.assert_allclose(json.loads(row["scores"]), answer["scores"], atol=1e-5)
    assert found.iloc[2, 5:].isna().all()


@pytest.mark.slow
def test_scores_of_pairs(tmp_path):
    similarity = keras.models.load_model(SAVED / "similarity.keras")
    similarity.save_to_preset(str(tmp_path / "similarity"))
    path = tmp_path / "pairs.tsv"
    path.write_text("text1\ttext2\na good film\tbad\n\tx\n")
    predict(str(tmp_path / "similarity"), path, tmp_path / "answers.jsonl")
    first, second = map(json.loads, (tmp_path / "answers.jsonl").read_text().splitlines())
    expected = similarity.classify(("a good film", "bad"))["score"]
    assert first == {"text1": "a good film", "text2": "bad", "score": pytest.approx(expected)}
    assert second["score"] is None


@pytest.mark.slow
def test_a_language_model(tiny_backbone, tiny_tokenizer, tmp_path):
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, 16)
    lm = gpt1_keras.GPT1CausalLM(tiny_backbone, preprocessor)
    lm.save_to_preset(str(tmp_path / "lm"))
    (tmp_path / "texts.csv").write_text("text\na good film\na\n")
    predict(str(tmp_path / "lm"), tmp_path / "texts.csv", tmp_path / "answers.csv")
    found = pd.read_csv(tmp_path / "answers.csv")
    assert list(found) == ["text", "score"]
    assert found.score[0] < 0
    assert np.isnan(found.score[1])  # a token without another before it


@pytest.mark.slow
def test_beam_answers_the_same(exported, expected, tmp_path):
    for number, texts in enumerate((TEXTS[:4], TEXTS[4:])):
        pd.DataFrame({"text": texts}).to_json(
            tmp_path / f"new-{number}.jsonl", orient="records", lines=True
        )
    output = tmp_path / "answers.jsonl"
    predict(exported, tmp_path / "new-*.jsonl", output, "--runner", "FnApiRunner")
    names = sorted(path.name for path in output.iterdir())
    assert names == ["part-00000-00000.jsonl", "part-00001-00000.jsonl"]
    lines = [line for name in names for line in (output / name).read_text().splitlines()]
    found = pd.DataFrame(map(json.loads, lines))
    assert list(found.text) == TEXTS
    compare(found, expected)
    predict(exported, tmp_path / "new-*.jsonl", tmp_path / "one.jsonl")
    assert (tmp_path / "one.jsonl").read_text().splitlines() == lines
    arguments = ["--model", exported, "--input", str(tmp_path / "one.jsonl"), "--output"]
    assert main([*arguments, str(output)]) == 1  # the shards are not lost
    assert main([*arguments, str(tmp_path / "one.jsonl"), "--runner", "FnApiRunner"]) == 1
    assert sorted(path.name for path in output.iterdir()) == names


@pytest.mark.parametrize(
    ("content", "output", "options", "message"),
    [
        ("text\na\n", "answers.xls", [], "output must end in"),
        ("text\na\n", "new.csv", [], "another file than the input"),
        ("Text,title\na,b\n", "a.csv", ["--columns", "text=Titel"], "no column .*Titel"),
        ("one,two\na,b\n", "a.csv", [], "expected text"),
        (
            "id,text\n1, \n2,\n",
            "a.csv",
            [],
            "None of 2 rows has an answer. .* line 2: text is b",
        ),
        ("text,score,predicted_score\na,1,1\n", "a.csv", [], "has answers already"),
        ("text,b\na,1\nb\nc\n", "a.csv", [], "lines 3, 4: has another number of columns"),
    ],
)
def test_refused(preset, tmp_path, capsys, content, output, options, message):
    source = tmp_path / "new.csv"
    source.write_text(content)
    arguments = ["--model", preset, "--input", str(source), "--output", str(tmp_path / output)]
    assert main([*arguments, *options]) == 1
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]
    assert source.read_text() == content


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("[" * 900 + "]" * 900, "line 2: 'other' holds lists or objects deeper"),
        ('{"a": ["\\ud83d"]}', "line 2: 'other' holds half of a surrogate pair"),
        ('{"\\ud83d": 1}', "line 2: 'other' holds half of a surrogate pair"),
    ],
)
def test_what_could_not_be_written_is_found_first(tmp_path, cell, message):
    """In a column that the model does not read."""
    path = tmp_path / "new.jsonl"
    path.write_text(f'{{"text": "a", "other": [[1]]}}\n{{"text": "b", "other": {cell}}}\n')
    with pytest.raises(ValueError, match=message):
        InputFiles([path], {}, ["text"]).survey()


def test_an_input_that_changes(preset, tmp_path, capsys, monkeypatch):
    """Between the reading that checks it and the one that answers it."""
    source = tmp_path / "new.csv"
    source.write_text("text,number\na,1\n")

    def survey_and_change(files, survey=InputFiles.survey):
        found = survey(files)
        assert [line.cells for line in found.files.lines(source)] == [["a", "1"]]
        source.write_text("number,text\na,1\n")
        return found

    monkeypatch.setattr(InputFiles, "survey", survey_and_change)
    arguments = ["--model", preset, "--input", str(source), "--output", str(tmp_path / "a.csv")]
    assert main(arguments) == 1
    assert "new.csv has changed" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_models_that_cannot(exported, tmp_path, capsys):
    (tmp_path / "new.csv").write_text("text\na\n")
    arguments = ["--input", str(tmp_path / "new.csv"), "--output", str(tmp_path / "a.csv")]
    assert main(["--model", str(tmp_path / "nothing"), *arguments]) == 1
    assert "is not a preset" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--model", exported, *arguments, "--flink_master", "x"])
    assert "--flink_master" in capsys.readouterr().err

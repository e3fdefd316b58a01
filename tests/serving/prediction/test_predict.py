"""`serving.predict` answers every row of a table, by an export as by a preset."""

import csv
import functools
import json
import pathlib
import re
import shutil

import keras
import numpy as np
import pandas as pd
import pytest

import gpt1_keras
from gpt1_keras.labelled_files import read_rows
from serving import engines
from serving.export import export
from serving.export.export_options import Batching, Explanation
from serving.export_names import METADATA_FILE
from serving.predict import main
from serving.prediction.answers_file import Layout, answers_file, kind_of, prefix_for
from serving.prediction.input_files import InputFiles

SAVED = pathlib.Path(__file__).parents[2] / "gpt1_keras" / "presets" / "saved_models"
TEXTS = ["a good film", 'schön; and "kind"', "the staff\nwere kind", "bad", "a", "film, bad"]


@pytest.fixture(scope="module", autouse=True)
def opened_once():
    """Opens each model once for all tests, as graphs take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "open_engine", functools.cache(engines.open_engine))
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
    table = pd.DataFrame({"id": range(7), "Comment": [*TEXTS, None], "score": "x"})
    table.to_csv(tmp_path / "new.csv", index=False, sep=";", encoding="utf-8-sig")
    predict(exported, tmp_path / "new.csv", tmp_path / "answers.csv")
    with open(tmp_path / "answers.csv", encoding="utf-8", newline="") as file:
        *rows, blank = csv.DictReader(file)
    answers = ["label", "score", "score_bad", "score_good", "is_sure"]
    names = [f"predicted_{name}" for name in answers]
    assert list(rows[0]) == ["id", "Comment", "score", *names]
    assert [row["Comment"] for row in rows] == TEXTS
    assert {blank[name] for name in names} == {""}
    found = pd.DataFrame({name: [row[f"predicted_{name}"] for row in rows] for name in answers})
    found[answers[1:-1]] = found[answers[1:-1]].astype(float)
    compare(found.assign(is_sure=found.is_sure == "true"), expected)
    said = capsys.readouterr().out
    assert "takes text from 'Comment'" in said
    assert "columns begin with predicted_" in said
    assert "6 answers" in said


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_any_character_comes_back(tmp_path, suffix):
    """Also control characters and what Unicode takes for line ends, in texts and in names."""
    characters = [*map(chr, range(32)), "\x7f", "\x85", "\u2028", "\u2029", "\ufeff", "\uffff"]
    texts = [text for each in characters for text in (each, f"a{each}", f"{each}b", f"a{each}b")]
    texts += ["\r\n", '"\r', "a,b;c\td|e", "'", ""]
    output = tmp_path / f"answers{suffix}"
    with answers_file(output, Layout(["te\rxt"], [{str}], ["label", "score"], "")) as write:
        write([[text, "good", 0.5] for text in texts])
    assert suffix == ".parquet" or not output.read_bytes().endswith(b"\r\n")
    if separator := {".csv": ",", ".tsv": "\t"}.get(suffix):
        options = {"sep": separator, "keep_default_na": False}
        found = [pd.read_csv(output, engine=engine, **options) for engine in ("c", "python")]
    elif suffix == ".jsonl":
        found = [pd.read_json(output, lines=True)]
    else:
        found = [pd.read_parquet(output)]
    for each in found:
        assert list(each["te\rxt"]) == texts
        assert set(each.label) == {"good"} and set(each.score) == {0.5}
    read = [row["te\rxt"] for row in read_rows(output)]
    assert read == texts


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_which_rows_are_read(tmp_path, suffix):
    """Of every format, those with a value in some column; a missing text is a blank one."""
    table = pd.DataFrame({"text": ["a", None, None, " "], "id": ["x", "y", None, " "]})
    path = tmp_path / f"new{suffix}"
    if separator := {".csv": ",", ".tsv": "\t"}.get(suffix):
        table.to_csv(path, sep=separator, index=False)
    elif suffix == ".jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_parquet(path)
    files = InputFiles([path], {}, ["text"])
    survey = files.survey()
    [rows] = survey.files.rows(survey.files.shards())
    assert [row["text"] for row, _ in rows] == ["a", ""]
    assert survey.rows == 2 and "2 blank rows are skipped" in survey.notices[-1]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([{"a": "\ud800"}, {"\udfff": 1}], ['{"a": "\\ud800"}', '{"\\udfff": 1}']),
        ([[("a", float("nan"))], {"b": float("inf")}], ['[["a", null]]', '{"b": null}']),
        ([2**53 + 1, 0.5], ["9007199254740993", "0.5"]),
        ([2**53 + 1, -(2**63)], [2**53 + 1, -(2**63)]),
        ([2**63, 1], [str(2**63), "1"]),
        ([2**53, 0.5], [2.0**53, 0.5]),
    ],
)
def test_values_that_not_every_format_has(tmp_path, values, texts):
    for suffix in (".csv", ".jsonl", ".parquet"):
        layout = Layout(["value"], [{kind_of(value) for value in values}], ["label"], "")
        with answers_file(tmp_path / f"a{suffix}", layout) as write:
            write([[value, None] for value in values])  # a row without an answer
    parquet = pd.read_parquet(tmp_path / "a.parquet")
    lines = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    table = pd.read_csv(tmp_path / "a.csv", dtype=str)
    assert parquet.label.isna().all() and table.label.isna().all()
    assert {row["label"] for row in rows} == {None}
    assert parquet.value.tolist() == texts
    as_json, cells = [row["value"] for row in rows], table.value
    for value, cell, written in zip(values, cells, as_json):
        assert written == (json.loads(cell) if isinstance(value, (dict, list)) else value)
        assert isinstance(value, (dict, list)) or cell == str(value)


def test_answers_take_no_column_of_the_input_s():
    answers = ["label", "score", "score_bad"]
    assert prefix_for(["text", "score_good"], answers) == ""
    for taken in answers:
        assert prefix_for(["text", taken], answers) == "predicted_"
        with pytest.raises(ValueError, match=f"has answers already: .*predicted_{taken}"):
            prefix_for(["text", "label", f"predicted_{taken}"], answers)


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
    for name, model in {"export": exported, "preset": preset}.items():
        predict(model, tmp_path / "new.jsonl", tmp_path / f"{name}.html", "--explain")
        page = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        marked = re.findall(r'<mark class="\w+ s\d" title=[^>]*>(\w+)</mark>', page)
        assert marked and set(marked) <= {"a", "good", "film", "bad"}


@pytest.mark.slow
def test_columns_of_choices(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text(
        "context,question,choice1,choice2,choice3\nThe sun.,What?,It rained.,Fine.,Snow.\n"
        "Rain.,,Yes.,No.,\nRain.,Why?,,,\n"
    )
    predict(str(SAVED / "chooser"), path, tmp_path / "answers.csv")
    found = pd.read_csv(tmp_path / "answers.csv")
    names = ["context", "question", "choice1", "choice2", "choice3"]
    assert list(found) == [*names, "label", "choice", "score", "scores"]
    scores = list(map(json.loads, found.scores[:2]))
    assert list(map(len, scores)) == [3, 2] and found.iloc[2, 5:].isna().all()
    for (_, row), each in zip(found.iterrows(), scores):
        best = int(np.argmax(each))
        assert (row.choice, row.label, row.score) == (best, row[f"choice{best + 1}"], max(each))


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
        ("text\na\n", "answers.xls", [], "must end in"),
        ("text\na\n", "new.csv", [], "another file"),
        ("Text,title\na,b\n", "a.csv", ["--columns", "text=Titel"], "Titel"),
        ("one,two\na,b\n", "a.csv", [], "expected text"),
        ("id,text\n1, \n2,\n", "a.csv", [], "None of 2 rows .* line 2: text is blank"),
        ("text\n\x01\n\u200b\n", "a.csv", [], "None of 2 rows .*: text is blank"),
        ("text,score,predicted_score\na,1,1\n", "a.csv", [], "answers already"),
        ("text,b\na,1\nb\nc\n", "a.csv", [], "lines 3, 4"),
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
    ("changes", "message"),
    [
        ({"class_names": ["bad"]}, "1 classes"),
        ({"class_names": ["bad", "bad"]}, "class_names"),
        ({"fields": ["content"]}, "content"),
        ({"fields": None}, "fields"),
    ],
)
def test_an_export_whose_description_is_another_s(exported, tmp_path, changes, message):
    folder = shutil.copytree(pathlib.Path(exported) / "2", tmp_path / "1")
    metadata = json.loads((folder / METADATA_FILE).read_text())
    (folder / METADATA_FILE).write_text(json.dumps(metadata | changes))
    with pytest.raises(ValueError, match=message):
        engines.open_engine(str(tmp_path))


@pytest.mark.parametrize("cell", ["[" * 900 + "]" * 900, '{"a": ["\\ud83d"]}', '{"\\ud83d": 1}'])
def test_what_could_not_be_written_is_found_first(tmp_path, cell):
    """In a column that the model does not read."""
    path = tmp_path / "new.jsonl"
    path.write_text(f'{{"text": "a", "other": [[1]]}}\n{{"text": "b", "other": {cell}}}\n')
    with pytest.raises(ValueError, match="line 2: 'other'"):
        InputFiles([path], {}, ["text"]).survey()


def test_an_input_that_changes(preset, tmp_path, capsys, monkeypatch):
    """Between the reading that checks it and the one that answers it."""
    source = tmp_path / "new.csv"
    source.write_text("text,number\na,1\n")

    def survey_and_change(files, survey=InputFiles.survey):
        found = survey(files)
        [rows] = found.files.rows(found.files.shards())
        assert [cells for _, cells in rows] == [["a", "1"]]
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

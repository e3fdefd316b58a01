"""Bad input to programs is found before any work, named in one line, and nothing is lost."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.examples import Examples
from serving.export.__main__ import main as export_main
from training import evaluate, finetune, pretrain
from training.corpus.corpus_format import Corpus
from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import DATASETS
from training.datasets.user_files import find_user_files
from training.evaluation.metrics import METRICS, check_scorable
from training.runs import finetuning

GOOD = "text,label\ngood,yes\nbad,no\n"
SCORES = "text,label\na,0.5\nb,3\n"


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        (tmp_path / name).write_text(content)
        return str(tmp_path / name)

    return write


@pytest.fixture
def fine_tune(write, tmp_path, capsys, monkeypatch):
    """Runs training.finetune on two files as far as the model; its status and error, no notes."""

    def build(*_):
        raise ValueError("as far as the model")

    monkeypatch.setattr(finetuning, "build_model", build)

    def fine_tune(train=GOOD, validation=GOOD, output="run", suffix="csv"):
        paths = write(f"a.{suffix}", train), write(f"b.{suffix}", validation)
        arguments = ["--train", paths[0], "--validation", paths[1], "--config", "gpt1_micro"]
        status = finetune.main([*arguments, "--output", str(tmp_path / output)])
        lines = capsys.readouterr().err.splitlines(keepends=True)
        return status, "".join(line for line in lines if not line.startswith("note: "))

    return fine_tune


@pytest.mark.parametrize(
    ("train", "validation", "suffix", "message"),
    [
        (GOOD, "text,label\ngood,maybe\n", "csv", "has the labels ['maybe']; expected ['no', 'yes"),
        (GOOD, "text,label\ngood,\nbad,\n", "csv", "b.csv: all 2 rows lack a label"),
        (SCORES, "text,label\na,1\nb,1\n", "csv",
         "b.csv has the same label, 1, for all of its 2 examples: pearson and spearman are undef"),
        (SCORES, "text,label\na,1\n", "csv", "b.csv has the same label, 1, for all of its 1 exam"),
        (SCORES, "text,label\na,1\nb,9\n", "csv", "b.csv, line 3: has the label '9'; expected a s"),
        ("text,label\na,0.5\nb,1e9\n", SCORES, "csv", "has scores from 0 to 1000000000, and the"),
        ("text,label\na,0.5\nb,n/a\n", SCORES, "csv",
         "a.csv, line 3: has the label 'n/a', which is no number; others have a fraction"),
        (GOOD, "text,label\n" + "".join(f"a,{'long ' * 99}{i}\n" for i in range(999)), "csv",
         ", and 979 more; expected ['no', 'yes']"),
        ("context,choices,label\na,bcd,1\n", GOOD, "csv", "line 2: choices must be a list of"),
        ('{"text": ["a"], "label": "b"}', GOOD, "jsonl", "a.jsonl, line 1: text must be one text."),
        ('{"text": "a", "label": ["b"]}', GOOD, "jsonl", "a.jsonl, line 1: label must be one text"),
        ('{"text": "a", "label": null}', GOOD, "jsonl", "a.jsonl, line 1: 'label' must be a text"),
        ('{"text": "a", "label": "b"}', '{"text": "\\ud800", "label": "b"}', "jsonl",
         "b.jsonl, line 1: 'text' holds half of a surrogate pair"),
    ],
)  # fmt: skip
def test_bad_rows_are_found_before_training(fine_tune, train, validation, suffix, message):
    status, error = fine_tune(train, validation, suffix=suffix)
    assert status == 1
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert len(error) < 3000


def test_a_failed_start_leaves_the_folder_free_for_other_options(fine_tune, tmp_path):
    assert fine_tune(validation="text,label\na,maybe\n")[0] == 1
    assert fine_tune()[1] == "error: as far as the model\n"
    assert not (tmp_path / "run").exists()


def test_a_warning_of_a_training_file_of_one_class(fine_tune):
    one = "text,label\na,yes\nb,yes\n"
    warning, error = fine_tune(one, one)[1].splitlines()
    assert warning == "warning: All 2 training examples have the label 'yes': nothing to learn."
    assert error == "error: as far as the model"
    assert "warning" not in fine_tune()[1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("options.json", "[" * 9999, "is not JSON"),
        ("history.json", "{}", "must hold a list. Received: dict"),
        ("result.json", "[]", "must hold an object. Received: list"),
    ],
)
def test_a_damaged_file_of_a_run_is_named(fine_tune, tmp_path, name, content, message):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text(content)
    status, error = fine_tune()
    assert status == 1
    assert (
        error.startswith(f"error: {tmp_path / 'run' / name} {message}") and "\n" not in error[:-1]
    )


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (finetune.main, ["--task", "sst2", "--config", "gpt1_micro"]),
        (evaluate.main, ["--task", "sst2", "--model", "nowhere"]),
        (pretrain.main, ["--corpus", "CORPUS", "--config", "gpt1_micro", "--steps", "1"]),
        (export_main, ["--model", "nowhere"]),
    ],
)
def test_a_file_in_the_folder_s_place_is_found_first(write, main, arguments, corpus, capsys):
    path = write("file", "in the way")
    arguments = [str(corpus) if each == "CORPUS" else each for each in arguments]
    assert main([*arguments, "--output", path]) == 1
    error = capsys.readouterr().err
    assert error == f"error: [Errno 20] Expected a folder, and found a file: '{path}'\n"


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_predictions_that_are_all_the_same_correlate_with_nothing(name):
    assert METRICS[name](np.array([1.0, 2.0, 4.0]), np.full(3, 2.5)) == 0.0


def test_labels_that_no_correlation_is_defined_for():
    same = Examples({"text": np.array([b"a"] * 2)}, np.array([3.0, 3.0]), np.arange(2))
    with pytest.raises(ValueError, match="b.csv.*label, 3"):
        check_scorable(same, ("pearson",), "b.csv")
    check_scorable(same, ("accuracy",), "b.csv")
    with pytest.raises(ValueError, match="b.csv has no example"):
        check_scorable(same.take(np.array([], int)), ("accuracy",), "b.csv")


def test_choices_keep_their_order_and_their_labels(write):
    path = write("a.csv", "context,choice2,choice1,label\nc,second,first,0\n")
    examples = load_examples(find_user_files(path, path), "train")
    assert list(examples.texts["choices"][0]) == [b"first", b"second"]
    assert examples.labels.tolist() == [0]


@pytest.mark.parametrize("inner", ["", "run", "runs/a"])
def test_a_run_within_its_corpus(corpus, inner, capsys, read_files):
    before = read_files(corpus)
    arguments = ["--corpus", str(corpus), "--config", "gpt1_micro", "--steps", "1"]
    assert pretrain.main([*arguments, "--output", str(corpus / inner)]) == 1
    assert "must not lie within" in capsys.readouterr().err
    assert read_files(corpus) == before


@pytest.mark.parametrize("name", ["../other.npy", "/tmp/other.npy", "a/b.npy", "..", ".", ""])
def test_a_corpus_s_index_that_points_elsewhere(corpus, tmp_path, name):
    folder = tmp_path / "corpus"
    shutil.copytree(corpus, folder)
    index = json.loads((folder / "index.json").read_text())
    shard = index["splits"]["train"]["shards"][0]
    shutil.copy(folder / shard["file"], tmp_path / "other.npy")
    shard["file"] = name
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"index\.json.*file's name"):
        Corpus(folder)


def test_a_loss_that_is_no_number_stops_the_run(corpus, tmp_path, monkeypatch, capsys):
    history = type("", (), {"history": {"loss": [float("nan")]}})
    monkeypatch.setattr(gpt1_keras.GPT1CausalLM, "fit", lambda *_, **__: history)
    arguments = ["--corpus", str(corpus), "--config", "gpt1_micro", "--steps", "2"]
    assert pretrain.main([*arguments, "--output", str(tmp_path / "run")]) == 1
    assert "The loss after 2 updates is nan: training has diverged" in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_validation_loss_that_is_no_number_stops_the_run(
    number, corpus, tmp_path, monkeypatch, capsys
):
    """At each start, and before the step is in any file."""
    logs = {"loss": number, "perplexity": number}
    monkeypatch.setattr(gpt1_keras.GPT1CausalLM, "evaluate", lambda *_, **__: logs)
    arguments = ["--corpus", str(corpus), "--config", "gpt1_micro", "--steps", "1"]
    arguments += ["--batch-size", "2", "--sequence-length", "16", "--jit-compile", "off"]
    for _ in range(2):
        assert pretrain.main([*arguments, "--output", str(tmp_path / "run")]) == 1
        message = f"error: The validation loss after 1 updates is {number}: training has diverged"
        assert message in capsys.readouterr().err
        assert not (tmp_path / "run" / "history.json").exists()


def test_a_search_is_no_run(fine_tune, tmp_path):
    """Its options stay, so that it can go on."""
    (tmp_path / "run" / "trials" / "001").mkdir(parents=True)
    status, error = fine_tune()
    assert status == 1
    assert error == (
        f"error: {tmp_path / 'run'} holds a search: give --search to go on with it, or choose "
        "another --output.\n"
    )
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["trials"]


def test_mnli_s_held_out_splits_as_a_configuration_of_their_own(made_up_tfds):
    rows = [{"premise": "p", "hypothesis": "h", "label": i, "idx": i} for i in range(3)]
    data_dir = made_up_tfds("glue/mnli_matched", {"validation": rows, "test": rows})
    # Other tests may have put the whole of glue/mnli there, which comes first; ax is not there.
    task = dataclasses.replace(DATASETS["mnli_matched"], tfds_names=("glue/ax",))
    assert DATASETS["mnli_mismatched"].held_out == "glue/mnli_mismatched"
    for role in "validation", "test":
        assert sorted(load_examples(task, role, DataOptions(data_dir)).labels) == [0, 1, 2]
    with pytest.raises(FileNotFoundError, match="glue/ax"):
        load_examples(task, "train", DataOptions(data_dir))

"""Bad input to programs is found before any work, named in one line, and nothing is lost."""

import dataclasses
import json
import os
import pathlib
import shutil

import h5py
import keras
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras import files
from serving.export.__main__ import main as export_main
from tests.helpers.small_disk import fill, small_disk
from training import evaluate, finetune, pretrain
from training.corpus.corpus_format import Corpus
from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import LabelledExamples, load_examples
from training.datasets.paper_datasets import DATASETS
from training.datasets.user_files import find_user_files
from training.evaluation.dataset_metrics import METRICS, check_scorable
from training.paper import zero_shot, zero_shot_runs
from training.paper.gathered_results import Results
from training.paper.report_files import report
from training.runs import finetuning
from training.runs.finetune_options import FinetuneOptions
from training.runs.run_folder import Run

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
        ("options.json", '{"a":', "is not JSON"),
        ("options.json", "[]", "must hold an object. Received: list"),
        ("options.json", "[" * 9999, "is not JSON"),
        ("history.json", "{}", "must hold a list. Received: dict"),
        ("result.json", "[]", "must hold an object. Received: list"),
        ("result.json", '{"score": NaN, ', "is not JSON"),
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
        (export_main, ["--model", "nowhere"]),
    ],
)
def test_a_file_in_the_folder_s_place_is_found_first(write, main, arguments, capsys):
    path = write("file", "in the way")
    assert main([*arguments, "--output", path]) == 1
    error = capsys.readouterr().err
    assert error == f"error: [Errno 20] Expected a folder, and found a file: '{path}'\n"


def test_a_full_disk(tmp_path, tiny_backbone):
    with small_disk(tmp_path / "small", "64k") as folder:
        run = Run(folder / "run", {})
        run.prepare()
        with pytest.raises(OSError, match=r"No space left on device: '.*/00000003.weights.h5'$"):
            run.save_snapshot(tiny_backbone, 3)
        with pytest.raises(OSError, match="No space left on device: '.*/run/file'$"):
            with files.atomic_path(folder / "run" / "file") as path:
                pathlib.Path(path).write_bytes(bytes(2**20))
        names = {path.name for path in (folder / "run").rglob("*")}
        assert names == {"snapshots"}


@pytest.mark.slow
def test_a_disk_that_others_fill_leaves_the_last_preset(tmp_path, tiny_backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1TextClassifier.preprocessor_cls(tiny_tokenizer)
    task = gpt1_keras.GPT1TextClassifier(tiny_backbone, 2, preprocessor=preprocessor)
    with small_disk(tmp_path / "small", "2m") as folder:
        run = Run(folder / "run", {})
        run.save_preset(task, "best")
        saved = task.get_weights()
        tiny_backbone.token_embedding.embeddings.assign_add(
            keras.ops.ones_like(tiny_backbone.token_embedding.embeddings)
        )
        # From no room at all to some for all but the last file.
        for free in (0, 20_000, 60_000, 100_000):
            others = fill(folder)
            os.truncate(others, others.stat().st_size - free)
            with pytest.raises(OSError, match=r"No space left on device: '.*/run/best'$"):
                run.save_preset(task, "best")
            others.unlink()
            assert [path.name for path in run.folder.iterdir()] == ["best"]
            loaded = gpt1_keras.GPT1TextClassifier.from_preset(str(run.folder / "best"))
            for ours, theirs in zip(loaded.get_weights(), saved, strict=True):
                np.testing.assert_array_equal(ours, theirs)
        run.save_preset(task, "best")


def test_a_preset_holds_no_state_of_the_optimizer(tmp_path, tiny_backbone, tiny_tokenizer, recwarn):
    preprocessor = gpt1_keras.GPT1TextClassifier.preprocessor_cls(tiny_tokenizer)
    task = gpt1_keras.GPT1TextClassifier(tiny_backbone, 2, preprocessor=preprocessor)
    task.compile()
    task.optimizer.build(task.trainable_variables)
    Run(tmp_path, {}).save_preset(task, "best")
    with h5py.File(tmp_path / "best" / "task.weights.h5") as file:
        assert "optimizer" not in file
    sizes = [path.stat().st_size for path in (tmp_path / "best").glob("*.h5")]
    assert sum(sizes) < 6 * task.count_params() + 50_000  # Adam's two moments would make it 12
    loaded = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path / "best"))
    for ours, theirs in zip(loaded.get_weights(), task.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not [warning for warning in recwarn if "optimizer" in str(warning.message)]


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_predictions_that_are_all_the_same_correlate_with_nothing(name):
    assert METRICS[name](np.array([1.0, 2.0, 4.0]), np.full(3, 2.5)) == 0.0


def test_labels_that_no_correlation_is_defined_for():
    same = LabelledExamples({"text": np.array([b"a"] * 2)}, np.array([3.0, 3.0]), np.arange(2))
    with pytest.raises(ValueError, match="b.csv has the same label, 3, for all of its 2 examples"):
        check_scorable(same, ("pearson",), "b.csv")
    check_scorable(same, ("accuracy",), "b.csv")
    with pytest.raises(ValueError, match="b.csv has no example with a label"):
        check_scorable(same.take(np.array([], int)), ("accuracy",), "b.csv")


def test_a_result_is_json_without_nan(tmp_path):
    run = Run(tmp_path, {})
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.add({"pearson": float("nan")})
    assert list(tmp_path.iterdir()) == []


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


def test_a_run_that_would_replace_what_it_reads(tmp_path):
    (tmp_path / "run" / "best").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"best is read, and the output would replace .*best"):
        Run(tmp_path / "run", {}).prepare(tmp_path / "run" / "best")
    Run(tmp_path / "other", {}).prepare(tmp_path / "run" / "best")


@pytest.mark.parametrize("name", ["../other.npy", "/tmp/other.npy", "a/b.npy", "..", ".", ""])
def test_a_corpus_s_index_that_points_elsewhere(corpus, tmp_path, name):
    folder = tmp_path / "corpus"
    shutil.copytree(corpus, folder)
    index = json.loads((folder / "index.json").read_text())
    shard = index["splits"]["train"]["shards"][0]
    shutil.copy(folder / shard["file"], tmp_path / "other.npy")
    shard["file"] = name
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"index\.json lists the shard .*; expected a file's name"):
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


def test_a_missing_data_set_is_found_before_any_probe(tfds_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(zero_shot_runs, "Scorer", lambda _: pytest.fail("a probe has begun"))
    arguments = ["--preset", "gpt1_tiny_books", "--probes", "dprd,wsc273", "--data-dir", tfds_dir]
    assert zero_shot.main([*arguments, "--output", str(tmp_path)]) == 1
    assert "wsc273 is not in" in capsys.readouterr().err


def test_finished_probes_are_kept(tfds_dir, tmp_path, monkeypatch, capsys):
    ran = []

    def run_probe(scorer, probe, *_):
        ran.append(probe.tfds_name)
        if ran == ["definite_pronoun_resolution", "glue/sst2"]:
            raise OSError("the disk is gone")
        return {"score": 0.5, "relative": 0.0, "questions": 1}

    monkeypatch.setattr(zero_shot_runs, "run_probe", run_probe)
    monkeypatch.setattr(zero_shot_runs, "Scorer", lambda _: run_probe)
    monkeypatch.setattr(zero_shot_runs, "load_task", lambda *_: None)
    arguments = ["--preset", "gpt1_tiny_books", "--probes", "dprd,sst2", "--data-dir", tfds_dir]
    arguments += ["--output", str(tmp_path)]
    assert zero_shot.main(arguments) == 1
    assert list(json.loads((tmp_path / "result.json").read_text())["probes"]) == ["dprd"]
    assert zero_shot.main(arguments) == 0
    assert ran == ["definite_pronoun_resolution", "glue/sst2", "glue/sst2"]
    assert "dprd: 0.5000" in capsys.readouterr().out
    assert zero_shot.main([*arguments, "--limit", "3"]) == 1
    assert "holds another result: its limit is None, not 3" in capsys.readouterr().err


def test_mnli_s_held_out_splits_as_a_configuration_of_their_own(made_up_tfds):
    rows = [{"premise": "p", "hypothesis": "h", "label": i, "idx": i} for i in range(3)]
    data_dir = made_up_tfds("glue/mnli_matched", {"validation": rows, "test": rows})
    # Other tests may have put the whole of glue/mnli there, which comes first; ax is not there.
    task = dataclasses.replace(DATASETS["mnli_matched"], tfds_names=("glue/ax",))
    assert DATASETS["mnli_mismatched"].held_out == "glue/mnli_mismatched"
    for role in "validation", "test":
        assert sorted(load_examples(task, role, DataOptions(data_dir)).labels) == [0, 1, 2]
    with pytest.raises(FileNotFoundError, match="glue/ax is not in"):
        load_examples(task, "train", DataOptions(data_dir))


def result(task, seed, **changes):
    options = {"preset": "p", "config": None, "transfer": "all", "lm_coefficient": 0.5}
    facts = {"best_epoch": 2, "metric": "accuracy", "decoder": "GPT1Backbone", "score": 0.5}
    history = [dict.fromkeys(DATASETS[task].metrics, 0.5)] * 2
    facts |= {"train_examples": 1000, "history": history}
    return {"task": task, "seed": seed, **options, **facts, "limit_examples": None, **changes}


@pytest.mark.parametrize("changes", [{"limit_examples": 99}, {"epochs": 9}, {"batch_size": 1}])
def test_runs_of_different_limits_are_not_mixed(changes):
    [name] = changes
    other = result("sst2", 1, lm_coefficient=0.0, **changes)
    with pytest.raises(ValueError, match=rf"runs on sst2 differ in {name}: None in a, and .* in b"):
        Results([("a", result("sst2", 0)), ("b", other)])
    Results([("a", result("sst2", 0)), ("b", other | {"task": "cola"})])


def test_tables_tell_which_runs_were_limited(tmp_path):
    for name, content in {
        "a": result("sst2", 0, limit_examples=1000),
        "b": result("qqp", 0),
    }.items():
        os.makedirs(tmp_path / name)
        (tmp_path / name / "result.json").write_text(json.dumps(content))
    text = report([tmp_path], tmp_path / "out")
    assert "Ours were trained on some of the examples: SST-2 on 1,000.\n" in text


def test_options_are_kept_once_the_run_has_started(tmp_path):
    options = dataclasses.asdict(FinetuneOptions("rte", config="gpt1_micro"))
    run = Run(tmp_path, options)
    run.prepare()
    Run(tmp_path, options | {"seed": 1})
    run.start()
    with pytest.raises(ValueError, match="other options: seed was 0, not 1"):
        Run(tmp_path, options | {"seed": 1})


def test_a_folder_that_can_be_written_to(tmp_path):
    files.check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError, match="Expected a folder, and found a file"):
            files.check_writable(path)

"""The pre-training program: what it writes, what it refuses, and a run without TensorFlow."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import OpenAIGPTLMHeadModel

import gpt1_keras
from tests.helpers import forked
from training.corpus.corpus_format import Corpus
from training.corpus.windows import SequentialWindows
from training.pretrain import main
from training.runs import pretraining
from training.runs.checkpoints import Checkpoints
from training.runs.pretrain_options import CheckpointSchedule, PretrainOptions
from training.runs.pretraining import build_model, pretrain

TESTS = pathlib.Path(__file__).parents[1]
SMALL = PretrainOptions(
    "gpt1_micro", steps=6, batch_size=4, sequence_length=32, learning_rate=3e-3, warmup_steps=2
)
SCHEDULE = CheckpointSchedule(checkpoint_every=2, keep=2)


@pytest.fixture(scope="session")
def whole_run(corpus, tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("run")
    return folder, pretrain(SMALL, corpus, folder, checkpoint_schedule=SCHEDULE)


@pytest.mark.slow
def test_a_run_writes_its_model_history_and_result(whole_run, corpus):
    folder, result = whole_run
    assert json.loads((folder / "result.json").read_text()) == result
    history = json.loads((folder / "history.json").read_text())
    assert result["history"] == history
    assert [entry["step"] for entry in history] == [2, 4, 6]
    for entry in history:
        assert entry["tokens_per_second"] > 0 and 0 < entry["share_of_peak"] < 1.5
        perplexity = np.exp(entry["validation_loss"])
        assert entry["validation_perplexity"] == pytest.approx(perplexity, rel=1e-5)
        assert entry["context_use"]["repeated_passage"]["tokens"] == 16
    assert history[-1]["validation_loss"] < history[0]["validation_loss"]
    assert dataclasses.asdict(SMALL).items() <= result.items()
    assert result["corpus_fingerprint"] == Corpus(corpus).fingerprint
    assert sorted(path.name for path in folder.iterdir()) == [
        "context_use.svg", "history.json", "logs", "options.json", "preset", "result.json"
    ]  # fmt: skip


@pytest.mark.slow
def test_the_preset_has_the_perplexity_that_is_reported(whole_run, corpus, tmp_path):
    """By Hugging Face's model, over every token of the validation split but the first."""
    folder, result = whole_run
    lm = gpt1_keras.GPT1CausalLM.from_preset(str(folder / "preset"))
    gpt1_keras.convert.save_hugging_face(lm, tmp_path)
    torch_lm = OpenAIGPTLMHeadModel.from_pretrained(tmp_path).eval()
    losses = []
    for tokens, weights in SequentialWindows(Corpus(corpus).split("validation"), 32, 4):
        ids = torch.tensor(tokens.astype("int64"))
        with torch.no_grad():
            logits = torch_lm(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.mT, ids[:, 1:], reduction="none")
        losses.append(loss.numpy()[weights > 0])
    losses = np.concatenate(losses)
    assert len(losses) == Corpus(corpus).split("validation").tokens - 1
    assert result["validation_loss"] == pytest.approx(losses.mean(), abs=1e-4)


def test_the_history_is_in_the_logs(whole_run):
    """As TensorBoard reads them."""
    folder, result = whole_run
    events = EventAccumulator(str(folder / "logs")).Reload()

    def series(name):
        return {each.step: each.tensor_proto.float_val[0] for each in events.Tensors(name)}

    for name in ("loss", "validation_loss", "validation_perplexity", "tokens_per_second"):
        expected = {entry["step"]: entry[name] for entry in result["history"]}
        assert series(name) == pytest.approx(expected, rel=1e-6)
    rates = series("learning_rate")
    assert rates[2] == pytest.approx(3e-3) and rates[6] == pytest.approx(0.0, abs=1e-9)
    assert set(series("repeated_passage_gap")) == {2, 4, 6}


@pytest.mark.parametrize(
    ("given", "steps", "warmup", "printed"),
    [
        (None, 40_000, 2000, ""),
        (
            None,
            500,
            50,
            "The warm-up is shortened to a tenth of the run, 50 of 500 updates",
        ),
        (300, 500, 300, ""),
        (500, 500, 500, "warning: A warm-up of 500 updates is not shorter than the run of 500"),
    ],
)
def test_the_warm_up(given, steps, warmup, printed, tmp_path, capsys):
    options = PretrainOptions("gpt1_micro", steps=steps, warmup_steps=given)
    assert options.warmup == warmup
    settled = pretraining._with_warmup(options, tmp_path, None)
    assert settled.warmup_steps == warmup
    assert printed in "".join(capsys.readouterr())


def test_a_run_that_goes_on_keeps_its_warm_up(tmp_path, capsys):
    (tmp_path / "options.json").write_text('{"warmup_steps": 1000}')
    options = PretrainOptions("gpt1_micro", steps=500)
    for folders in ((tmp_path, None), (tmp_path / "new", tmp_path)):
        assert pretraining._with_warmup(options, *folders).warmup_steps == 1000
    assert capsys.readouterr().out == ""


def test_the_same_command_returns_what_is_finished(whole_run, corpus):
    folder, result = whole_run
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert pretrain(SMALL, corpus, folder, checkpoint_schedule=SCHEDULE) == result
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_the_card_says_what_the_result_says(whole_run):
    folder, result = whole_run
    card = (folder / "preset" / "README.md").read_text(encoding="utf-8")
    assert "Not recorded." not in card
    for row in (
        f"| train tokens | {result['train_tokens']:,} |",
        f"| validation tokens | {result['validation_tokens']:,} |",
        f"| corpus fingerprint | {result['corpus_fingerprint']} |",
        f"| learning rate | {result['learning_rate']} |",
        "| step | loss | perplexity |",
        f"| {result['steps']} (this preset) | {result['validation_loss']:.4f} "
        f"| {result['validation_perplexity']:.4f} |",
    ):
        assert f"\n{row}\n" in card
    assert 'model.generate("' in card


@pytest.mark.slow
def test_the_schedule_changes_nothing_in_the_model(whole_run, corpus, tmp_path):
    pretrain(
        SMALL,
        corpus,
        tmp_path,
        checkpoint_schedule=CheckpointSchedule(checkpoint_every=5, validation_batches=1),
    )
    models = [
        gpt1_keras.GPT1CausalLM.from_preset(str(folder / "preset"))
        for folder in (whole_run[0], tmp_path)
    ]
    for ours, theirs in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_weights_are_the_paper_s(corpus):
    model = build_model(PretrainOptions("gpt1_small", steps=1), 8000)
    for variable in model.backbone.trainable_variables:
        value = np.array(variable)
        if value.ndim > 1:
            assert abs(value.mean()) < 1e-3 and abs(value.std() - 0.02) < 1e-3
        else:
            assert set(np.unique(value)) <= {0.0, 1.0}


@pytest.mark.slow
def test_a_run_goes_on_from_a_preset(whole_run, corpus, tmp_path):
    """At a rate too small to change a weight, it ends as what it began with."""
    preset = whole_run[0] / "preset"
    options = dataclasses.replace(
        SMALL, steps=2, learning_rate=1e-30, initial_weights=str(preset), repeat_share=0.5
    )
    before = gpt1_keras.GPT1CausalLM.from_preset(str(preset))
    for name, changes, dropout in (("own", {}, 0.1), ("other", {"dropout": 0.0}, 0.0)):
        run = dataclasses.replace(options, **changes)
        result = pretrain(run, corpus, tmp_path / name, checkpoint_schedule=SCHEDULE)
        assert result["initial_weights"] == str(preset) and result["repeat_share"] == 0.5
        after = gpt1_keras.GPT1CausalLM.from_preset(str(tmp_path / name / "preset"))
        for ours, theirs in zip(after.get_weights(), before.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert after.backbone.dropout == dropout
    # Of what comes without dropout, not the configuration's.
    again = build_model(options, before.backbone.vocabulary_size, initial=after.backbone)
    assert again.backbone.dropout == 0.0


@pytest.mark.slow
def test_a_preset_that_does_not_fit(whole_run, corpus, tmp_path):
    own = str(whole_run[0] / "preset")
    for changes, message in (
        ({"config": "gpt1_tiny", "initial_weights": own}, "num_layers was 2, not 4"),
        ({"config": "lstm_micro", "initial_weights": own}, "another configuration: units was None"),
        ({"config": "gpt1_tiny", "initial_weights": "gpt1_tiny_books"}, "another tokenizer"),
        ({"initial_weights": "nowhere"}, "nowhere is not a preset"),
    ):
        options = dataclasses.replace(SMALL, **changes)
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            pretrain(options, corpus, tmp_path / "run")
        assert not (tmp_path / "run" / "options.json").exists()


def test_a_preset_is_not_written_over(whole_run, corpus, tmp_path):
    shutil.copytree(whole_run[0] / "preset", tmp_path / "preset")
    options = dataclasses.replace(SMALL, initial_weights=str(tmp_path / "preset"))
    with pytest.raises(ValueError, match="preset is read"):
        pretrain(options, corpus, tmp_path)


def cut_short(options, corpus, folder, steps):
    """Goes as far as those steps, and no further."""

    class Cut(Exception):
        pass

    original = Checkpoints.save

    def save(checkpoints, model, step, note):
        if step > steps:
            raise Cut
        original(checkpoints, model, step, note)

    Checkpoints.save = save
    try:
        with pytest.raises(Cut):
            pretrain(options, corpus, folder, checkpoint_schedule=SCHEDULE)
    finally:
        Checkpoints.save = original


@pytest.fixture(scope="module")
def unfinished(corpus, tmp_path_factory):
    """The folder of a run that was cut off after its second checkpoint."""
    folder = tmp_path_factory.mktemp("unfinished")
    cut_short(SMALL, corpus, folder, 4)
    return folder


@pytest.fixture
def unfinished_run(unfinished, tmp_path):
    """A copy of it."""
    return shutil.copytree(unfinished, tmp_path / "run")


@pytest.mark.slow
def test_a_corpus_that_changed_since(corpus, unfinished_run, tmp_path):
    changed = tmp_path / "corpus"
    shutil.copytree(corpus, changed)
    shard = next(changed.glob("train-*.npy"))
    tokens = np.load(shard)
    tokens[7] += 1
    np.save(shard, tokens)
    with pytest.raises(ValueError, match="SHA-256"):
        pretrain(SMALL, changed, tmp_path / "run", checkpoint_schedule=SCHEDULE)

    other = tmp_path / "other"
    index = json.loads((corpus / "index.json").read_text())
    shutil.copytree(corpus, other)
    index["splits"]["train"]["shards"].reverse()
    index["tokenizer"]["fingerprint"] = "0"
    (other / "index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="corpus_fingerprint"):
        pretrain(SMALL, other, tmp_path / "run", checkpoint_schedule=SCHEDULE)
    assert list((tmp_path / "run" / "checkpoints").glob("*.npz"))


@pytest.mark.slow
def test_a_full_disk(corpus, unfinished_run):
    """The limit on the size of a file stands for it: the system refuses to write more."""
    (unfinished_run / "checkpoints" / "step-00000004.npz").unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match="00004.npz.*00002.npz"):
            pretrain(SMALL, corpus, unfinished_run, checkpoint_schedule=SCHEDULE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in (unfinished_run / "checkpoints").iterdir()] == [
        "step-00000002.npz"
    ]
    assert (
        pretrain(SMALL, corpus, unfinished_run, checkpoint_schedule=SCHEDULE)["history"][-1]["step"]
        == 6
    )


def test_sigterm_before_there_is_anything_to_save(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Corpus, "verify", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    arguments = ["--corpus", corpus, "--config", "gpt1_micro", "--steps", 2, "--output", "run"]
    assert main([str(argument) for argument in arguments]) == 143
    assert "Interrupted before anything was saved" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": "huge"}, "Unknown configuration 'huge'"),
        ({"steps": 0}, "steps must be at least 1. Received: 0."),
        ({"batch-size": 0}, "batch_size must be at least 1. Received: 0."),
        ({"accumulation-steps": 0}, "accumulation_steps must be at least 1. Received: 0."),
        ({"sequence-length": 129}, "sequence_length must be at most 128, the context of gpt1_mi"),
        ({"sequence-length": 0}, "sequence_length must be at least 1. Received: 0."),
        ({"dtype": "int8"}, "dtype must be one of ['float32', 'mixed_bfloat16'"),
        ({"repeat-share": 1.5}, "repeat_share must be from 0 to 1. Received: 1.5."),
        ({"dropout": 1.5}, "dropout must be at least 0 and below 1. Received: 1.5."),
        ({"learning-rate": 0}, "learning_rate must be above 0. Received: 0.0."),
        ({"clip-norm": -1}, "clip_norm must be above 0. Received: -1.0."),
        ({"warmup-steps": -1}, "warmup_steps must be at least 0. Received: -1."),
        ({"strategy": "tpu"}, "Unknown strategy 'tpu'; expected one of ['none', 'mirrored', 'mu"),
        ({"checkpoint-every": 0}, "checkpoint_every must be at least 1. Received: 0."),
        ({"keep": 0}, "keep must be at least 1. Received: 0."),
        ({"validation-batches": 0}, "validation_batches must be at least 1. Received: 0."),
        ({"corpus": "nowhere"}, "nowhere"),
    ],
)  # fmt: skip
def test_bad_arguments_are_one_clear_line(changes, message, corpus, tmp_path, capsys):
    given = {"corpus": corpus, "config": "gpt1_micro", "steps": 2, "output": tmp_path / "run"}
    arguments = [
        str(part) for name, value in (given | changes).items() for part in (f"--{name}", value)
    ]
    assert main(arguments) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and message in error and "\n" not in error
    assert not (tmp_path / "run").exists()


def run_on_two_devices(arguments):
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    sys.exit(main(arguments))


@pytest.mark.slow
def test_batches_that_the_replicas_cannot_share(corpus, tmp_path):
    arguments = [
        "--corpus", corpus, "--config", "gpt1_micro", "--steps", "2", "--batch-size", "3",
        "--strategy", "mirrored", "--output", tmp_path / "run",
    ]  # fmt: skip
    arguments = [str(argument) for argument in arguments]
    process = forked.start(run_on_two_devices, arguments, log=tmp_path / "log")
    process.join(300)
    assert process.exitcode == 1
    assert "error: A batch of 3 windows cannot be shared by 2 wor" in (tmp_path / "log").read_text()
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
@pytest.mark.slow
def test_where_there_is_no_tensorflow(corpus, tmp_path):
    """The same batches and losses; TensorFlow then writes the preset from the checkpoint."""
    arguments = [
        "--corpus", corpus, "--config", "gpt1_micro", "--steps", "6", "--batch-size", "4",
        "--sequence-length", "32", "--dropout", "0", "--checkpoint-every", "2",
        "--output", tmp_path / "jax",
    ]  # fmt: skip
    arguments = [str(argument) for argument in arguments]
    process = subprocess.run(
        [
            sys.executable,
            str(TESTS / "helpers/without_tensorflow.py"),
            "training.pretrain",
            *arguments,
        ],
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
    )
    assert process.returncode == 0, process.stderr
    assert "The preset needs TensorFlow" in process.stdout
    history = json.loads((tmp_path / "jax" / "history.json").read_text())

    assert main(arguments) == 0
    lm = gpt1_keras.GPT1CausalLM.from_preset(str(tmp_path / "jax" / "preset"))
    assert lm.backbone.dropout == 0.0  # the run's
    options = PretrainOptions("gpt1_micro", steps=6, batch_size=4, sequence_length=32, dropout=0.0)
    result = pretrain(options, corpus, tmp_path / "tf", checkpoint_schedule=SCHEDULE)
    for ours, theirs in zip(result["history"], history, strict=True):
        for name in ("loss", "validation_loss"):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-4)
    other = gpt1_keras.GPT1CausalLM.from_preset(str(tmp_path / "tf" / "preset"))
    for ours, theirs in zip(lm.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)

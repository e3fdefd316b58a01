"""Pre-training runs that go on: from an earlier one at a constant rate, and after signals."""

import dataclasses
import os
import signal

import numpy as np
import pytest
from tensorflow.python.framework import config as tensorflow_config

from gpt1_keras import GPT1CausalLM
from gpt1_keras.presets.configurations import CONFIGURATIONS
from tests.helpers.eager import eagerly
from training.pretrain import main
from training.runs import newest_saved
from training.runs.checkpoints import Checkpoints, CheckpointSaver
from training.runs.pretrain_options import CheckpointSchedule, PretrainOptions
from training.runs.pretraining import Validation, pretrain
from training.runs.run_folder import Run

pytestmark = pytest.mark.slow

# With dropout, so that the state of the random numbers counts too.
WHOLE = PretrainOptions(
    "gpt1_micro", steps=8, batch_size=4, sequence_length=32, warmup_steps=2, decay_steps=4
)
FIRST = dataclasses.replace(WHOLE, steps=6, decay_steps=2)
SCHEDULE = CheckpointSchedule(checkpoint_every=2, keep=1)


@pytest.fixture(scope="module")
def run(corpus):
    """Runs a pre-training; sums are in the same order each time, to compare bit for bit."""

    def run(options, folder, resume_from=None):
        return pretrain(
            options,
            corpus,
            folder,
            checkpoint_schedule=SCHEDULE,
            resume_from=resume_from,
        )

    small = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    tensorflow_config.enable_op_determinism()
    with eagerly(), pytest.MonkeyPatch.context() as patch:
        patch.setitem(CONFIGURATIONS, "gpt1_micro", {**small, "max_sequence_length": 32})
        yield run
    tensorflow_config.disable_op_determinism()


@pytest.fixture(scope="module")
def first_run(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("earlier") / "first"
    run(FIRST, folder)
    return folder


def weights(folder):
    return GPT1CausalLM.from_preset(str(folder / "preset")).get_weights()


def test_the_next_run_ends_as_one_run_would(run, first_run, tmp_path, monkeypatch):
    expected = run(WHOLE, tmp_path / "whole")["history"]

    def interrupt(run, entry, add=Run.add):
        if entry["step"] == WHOLE.steps:  # amid its decay
            raise KeyboardInterrupt
        add(run, entry)

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(Run, "add", interrupt)
        run(WHOLE, tmp_path / "second", first_run)
    found = run(WHOLE, tmp_path / "second", first_run)["history"]

    for ours, theirs in zip(found, expected, strict=True):
        for name in ("step", "loss", "validation_loss", "context_use"):
            assert ours[name] == theirs[name]
    for ours, theirs in zip(weights(tmp_path / "second"), weights(tmp_path / "whole"), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    kept = [path.name for path in (tmp_path / "second" / "checkpoints").iterdir()]
    assert kept == ["step-00000004.npz"]


def test_each_run_ends_decayed(run, first_run, tmp_path):
    """Other weights than those of before the decay, which alone the next run is given."""
    [checkpoint] = (first_run / "checkpoints").iterdir()
    with np.load(checkpoint) as arrays:
        before = arrays["arr_0"]
    assert checkpoint.name == "step-00000004.npz"
    assert not np.array_equal(before, weights(first_run)[0])


def test_signals_end_a_run(run, tmp_path, monkeypatch):
    """Between two checkpoints, while it validates, and in the last update before a checkpoint."""
    expected = run(WHOLE, tmp_path / "whole")
    end_batch, validate = CheckpointSaver.on_train_batch_end, Validation.scores
    updates, validations = [1, 4, 5], [8]

    def end_batch_or_signal(saver, batch, logs=None):
        if updates[:1] == [saver._first + batch + 1]:
            del updates[0]
            os.kill(os.getpid(), signal.SIGTERM)
        end_batch(saver, batch, logs)

    def validate_or_end(validation, limit=None):
        if validations == [int(validation._model.optimizer.iterations)]:
            validations.clear()
            raise KeyboardInterrupt  # as Ctrl-C does then
        return validate(validation, limit)

    monkeypatch.setattr(CheckpointSaver, "on_train_batch_end", end_batch_or_signal)
    monkeypatch.setattr(Validation, "scores", validate_or_end)
    notes = {}
    for newest in (1, 4, 5, 8):
        with pytest.raises(KeyboardInterrupt):
            run(WHOLE, tmp_path / "ended")
        path = newest_saved(tmp_path / "ended")
        assert path == str(tmp_path / f"ended/checkpoints/step-{newest:08}.npz")
        notes[newest] = Checkpoints(tmp_path / "ended/checkpoints", {}).note(newest)
    found = run(WHOLE, tmp_path / "ended")
    for update, entry in ((1, found["history"][0]), (5, found["history"][2])):
        # The seconds before the interruption count; the speed is of the update after it.
        after = WHOLE.batch_size * WHOLE.sequence_length / entry["tokens_per_second"]
        assert entry["seconds"] == pytest.approx(notes[update]["seconds"] + after, 0.01, 0.01)
    for ours, theirs in zip(found["history"], expected["history"], strict=True):
        for name in ("step", "loss", "validation_loss", "context_use"):
            assert ours[name] == theirs[name]
    for ours, theirs in zip(weights(tmp_path / "ended"), weights(tmp_path / "whole"), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decay-steps": 7}, "has no checkpoint of at most 1 updates, where the first of the two"),
        ({"seed": 3}, "holds a run with other options: seed was 0, not 3."),
        ({"decay-steps": None}, "both need --decay-steps. Received: 2 in "),
        ({"resume-from": "nowhere"}, "nowhere is not a pre-training: it has no options.json."),
        ({"decay-steps": 9}, "decay_steps must be at most steps=8. Received: 9."),
        ({"decay-steps": 0}, "decay_steps must be at least 1. Received: 0."),
    ],
)
def test_what_cannot_go_on(changes, message, corpus, first_run, tmp_path, capsys):
    given = {
        "corpus": corpus, "config": "gpt1_micro", "steps": 8, "batch-size": 4, "decay-steps": 4,
        "sequence-length": 32, "warmup-steps": 2, "resume-from": first_run,
        "output": tmp_path / "run",
    }  # fmt: skip
    arguments = [
        str(part)
        for name, value in (given | changes).items()
        if value is not None
        for part in (f"--{name}", value)
    ]
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()

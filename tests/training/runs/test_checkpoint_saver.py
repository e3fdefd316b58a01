"""When checkpoints are saved between two updates: by the clock, and upon a signal."""

import os
import signal

import pytest

from training.runs import checkpoints
from training.runs.checkpoints import CheckpointSaver

LOGS = {"loss": 1.0}


class Saved(list):
    """Stands for a run's checkpoints; it holds their steps, and the newest one's note."""

    def save(self, model, step, note):
        self.append(step)
        self.note = note


@pytest.fixture
def saved():
    return Saved()


@pytest.fixture
def saver(saved):
    saver = CheckpointSaver(saved)
    saver.set_params({"steps": 100})
    return saver


@pytest.fixture
def now(monkeypatch):
    """The time, in a list."""
    now = [0.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    return now


def test_checkpoints_go_by_time(now, saver, saved):
    """However short a `fit` is: what an interruption costs is time."""
    for first in (100, 110):
        saver.set_params({"steps": 10})
        with saver.during_fit(first, 0.0):
            for batch in range(10):
                now[0] += 50.0
                saver.on_train_batch_end(batch, LOGS)
    assert saved == [103, 106, 109, 112, 115, 118]


def test_a_checkpoint_notes_the_seconds_so_far(now, saver, saved):
    """Also those before an interruption, by which the time of its `fit` began earlier."""
    now[0] = 1000.0
    with saver.during_fit(20, started=now[0] - 30.0):
        now[0] += 125.0
        saver.on_train_batch_end(0, LOGS)
    assert saved == [21] and saved.note == {"seconds": 155.0}


def test_what_the_run_saves_counts(now, saver, saved):
    saver.set_params({"steps": 10})
    now[0] = 1000.0
    saver.on_train_batch_end(9, LOGS)  # the last, after which the run saves
    saver.saved()
    saver.on_train_batch_end(0, LOGS)
    assert saved == []


@pytest.fixture
def python_handles_signals():
    """Handlers as a terminal's process has them: in the background, SIGINT may be ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("python_handles_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_update(number, saver, saved, capsys):
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt) as raised, saver.during_fit(10, 0.0):
        os.kill(os.getpid(), number)
        again = " Ctrl-C again ends at once." if number == signal.SIGINT else ""
        assert saved == [] and capsys.readouterr().out == f"\nSaving after this update.{again}\n"
        # The second ends the process at once, also while TensorFlow computes.
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        saver.on_train_batch_end(4, LOGS)
    assert saved == [15] and raised.value.args == (number,)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_signal_during_the_last_update(saver, saved):
    with pytest.raises(KeyboardInterrupt), saver.during_fit(10, 0.0):
        os.kill(os.getpid(), signal.SIGTERM)
        saver.on_train_batch_end(99, LOGS)
        saved.append("by the run")
        saver.saved()
    assert saved == ["by the run"]


@pytest.mark.usefixtures("python_handles_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["before", "amid", "after"])
def test_a_signal_while_the_run_saves(when, number, saver, saved):
    """After the last update: the checkpoint is written to its end, and the signal is not lost."""
    with pytest.raises(KeyboardInterrupt) as raised, saver.during_fit(10, 0.0):
        for moment in ("before", "amid", "after"):
            if moment == when:
                os.kill(os.getpid(), number)
            if moment == "amid":
                saved.append("by the run")
        if when != "after":
            saver.saved()
    assert saved == ["by the run"] and raised.value.args == (number,)


def test_a_model_that_has_diverged_is_not_saved(saver, saved):
    with pytest.raises(KeyboardInterrupt), saver.during_fit(10, 0.0):
        os.kill(os.getpid(), signal.SIGTERM)
        saver.on_train_batch_end(4, {"loss": float("nan")})
    assert saved == []


def test_an_ignored_signal_stays_ignored(saver):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with saver.during_fit(10, 0.0):
            os.kill(os.getpid(), signal.SIGINT)
            saver.on_train_batch_end(4, LOGS)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)

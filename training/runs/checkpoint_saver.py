"""Saves a run's checkpoints by the clock, and before a signal ends it."""

import contextlib
import math
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import keras

from gpt1_keras.cli import signals_handled
from training.runs.checkpoints import Checkpoints

_SECONDS_PER_CHECKPOINT = 120.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOSS_STATE = "loss_state"  # of a checkpoint's note: that of the mean loss so far


class CheckpointSaver(keras.callbacks.Callback):
    """Saves a checkpoint between two updates of a `fit`: every two minutes, and upon a signal.

    The run itself saves after the last update of a `fit`, still in the block of `during_fit`, calls
    `saved`, and gives the same object to all `fit`s.

    Updates are counted in batches: in float16, the optimizer does not count those whose gradients
    overflow.

    Args:
        keeps_loss: whether checkpoints keep the state of the mean loss, so that a `fit` that is
            resumed reports the mean over all its updates. Not under a strategy, where each replica
            has a share of that state.
        is_quiet: whether to leave out the line that says how far the run is.
    """

    def __init__(
        self, checkpoints: Checkpoints, keeps_loss: bool = False, is_quiet: bool = True
    ) -> None:
        super().__init__()
        self._checkpoints, self._keeps_loss, self._is_quiet = checkpoints, keeps_loss, is_quiet
        self._saved = time.monotonic()
        self._signal: int | None = None
        self._first = 0
        self._loss_state: Sequence[float] | None = None

    @contextlib.contextmanager
    def during_fit(self, step: int, loss_state: Sequence[float] | None = None) -> Iterator[None]:
        """Makes SIGINT and SIGTERM wait for the end of an update, or of the block if none is left.

        A second one ends at once.

        Args:
            step: updates before this `fit`.
            loss_state: what the note of the checkpoint has, of which this `fit` is the rest.

        Raises:
            KeyboardInterrupt: a signal has asked to end.
        """
        self._first, self._loss_state = step, loss_state
        with signals_handled(self._take, *_SIGNALS):
            yield
        self._end_if_asked()

    def saved(self) -> None:
        """Takes note that the run has saved a checkpoint.

        Raises:
            KeyboardInterrupt: a signal has asked to end.
        """
        self._saved = time.monotonic()
        self._end_if_asked()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self._loss_state is not None:
            for variable, value in zip(self.model.metrics[0].variables, self._loss_state):
                variable.assign(value)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        is_due = time.monotonic() - self._saved >= _SECONDS_PER_CHECKPOINT
        is_last = batch + 1 == self.params["steps"]
        if is_last or not (is_due or self._signal is not None):
            return
        loss, step = float((logs or {})["loss"]), self._first + batch + 1
        if math.isfinite(loss):  # otherwise the run will say that it has diverged
            if hasattr(self.model, "jax_state_sync"):
                self.model.jax_state_sync()  # on JAX, `fit` keeps the weights elsewhere meanwhile
            note = {}
            if self._keeps_loss:
                note[LOSS_STATE] = [float(each) for each in self.model.metrics[0].variables]
            self._checkpoints.save(self.model, step, note)
            if not self._is_quiet:
                print(f"step {step}: loss {loss:.4f} so far, saved", flush=True)
        self.saved()

    def _end_if_asked(self) -> None:
        if self._signal is not None:
            raise KeyboardInterrupt(self._signal)

    def _take(self, number: int, frame: FrameType | None) -> None:
        """Takes the first signal. It leaves the second to the system, which waits for nothing."""
        self._signal = number
        for each in _SIGNALS:
            if signal.getsignal(each) == self._take:
                signal.signal(each, signal.SIG_DFL)
        print("\nSaving after this update. Ctrl-C again ends at once.", flush=True)

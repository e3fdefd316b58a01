"""Checkpoints of a run: written whole or not at all, the last few kept, read on any backend."""

import contextlib
import json
import math
import os
import pathlib
import re
import signal
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import keras
import numpy as np

from gpt1_keras.exit_status import signals_handled
from gpt1_keras.files import atomic_path
from gpt1_keras.models.weights_check import check_finite

_NAME = re.compile(r"step-(\d{8})\.npz")


# What a damaged file, or a stranger's, may raise.
_FAULTS = (
    *(OSError, EOFError, LookupError, ValueError, TypeError, AttributeError, RuntimeError),
    *(MemoryError, zipfile.BadZipFile),
)
_BYTES_BESIDE_ARRAYS = 2**20  # at most: the options, and the arrays' own headers

_SECONDS_PER_CHECKPOINT = 120.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Of a checkpoint's note, what a `fit` that is resumed goes on from:
LOSS_STATE = "loss_state"  # that of the mean loss so far
SECONDS = "seconds"  # so far


class Checkpoints:
    """The checkpoints of one run.

    Each holds all that training changes (weights, the states of the optimizer and of the random
    seeds), the number of updates so far, and the options of the run.

    Args:
        folder: path; created with the first checkpoint.
        options: kept with each checkpoint.
        keep: how many to keep; older ones are deleted once a newer one is whole.
        keep_step: a number of updates whose checkpoint is kept for good.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        options: dict[str, Any],
        keep: int = 3,
        keep_step: int | None = None,
    ) -> None:
        self.folder = pathlib.Path(folder)
        self.options = options
        self.keep = keep
        self.keep_step = keep_step

    def save(self, model: keras.Model, step: int, note: Mapping[str, Any] = {}) -> None:
        """Saves a checkpoint of a compiled model after `step` updates.

        Args:
            note: what else the run will want to know, as JSON holds it.

        Raises:
            OSError: it cannot be written, as when the disk is full. Earlier ones stay.
        """
        arrays = [keras.ops.convert_to_numpy(variable) for variable in _state(model)]
        header = json.dumps({"step": step, "options": self.options, "note": note})
        path = self._path(step)
        try:
            with atomic_path(path) as temporary:
                np.savez(temporary, *arrays, header=np.frombuffer(header.encode(), np.uint8))
        except OSError as error:
            last = max(self._steps(), default=None)
            rest = (
                f"The last good one is {self._path(last)}; the same command goes on from it."
                if last is not None
                else "There is no earlier one."
            )
            raise OSError(
                f"Could not save the checkpoint {path}: {error.strerror or error}. {rest}"
            ) from error
        self._delete(self._steps()[: -self.keep])

    def note(self, step: int) -> dict[str, Any]:
        """Returns the note that a checkpoint, which has been restored, was saved with."""
        with np.load(self._path(step), allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
        return header["note"]

    def newest(self, at_most: int = sys.maxsize) -> int:
        """Returns the updates of the newest checkpoint up to `at_most`; 0 if there is none."""
        return max((step for step in self._steps() if step <= at_most), default=0)

    def restore(self, model: keras.Model, at_most: int = sys.maxsize) -> int:
        """Loads the newest checkpoint of at most `at_most` updates into a compiled model.

        Returns:
            Its number of updates; 0 if there is no checkpoint.

        Raises:
            ValueError: the checkpoint is damaged, or of another model.
        """
        paths = [self._path(step) for step in self._steps() if step <= at_most]
        if not paths:
            return 0
        variables = _state(model)
        step = self.newest(at_most)
        try:
            with np.load(paths[-1], allow_pickle=False) as arrays:
                _check_size(arrays.zip, variables)
                header = json.loads(arrays["header"].tobytes())
                values = [arrays[f"arr_{i}"] for i in range(len(arrays.files) - 1)]
            if header["step"] != step:
                raise ValueError(f"its name and its {str(header['step'])[:20]} updates differ")
            for i, value in enumerate(values):
                check_finite(f"its array {i}", value)
        except _FAULTS as error:
            before = f"{paths[-2]} before it may be good: " if paths[1:] else ""
            raise ValueError(
                f"The checkpoint {paths[-1]} is damaged: {error}. {before}delete the damaged one "
                f"to go on from {'there' if before else 'the start'}."
            ) from None
        shapes = [value.shape for value in values]
        expected = [tuple(variable.shape) for variable in variables]
        if shapes != expected:
            different = next(
                (pair for pair in zip(shapes, expected) if pair[0] != pair[1]),
                (f"{len(shapes)} arrays", len(expected)),
            )
            raise ValueError(
                f"The checkpoint {paths[-1]} belongs to another model: it has {different[0]} where "
                f"{different[1]} was expected."
            )
        for variable, value in zip(variables, values):
            variable.assign(value)
        return step

    def clear(self) -> None:
        """Deletes all checkpoints except the one that is kept for good."""
        self._delete(self._steps())
        with contextlib.suppress(OSError):  # the folder is not empty, or missing
            self.folder.rmdir()

    def _delete(self, steps: list[int]) -> None:
        for step in steps:
            if step != self.keep_step:
                self._path(step).unlink()

    def _path(self, step: int) -> pathlib.Path:
        return self.folder / f"step-{step:08d}.npz"

    def _steps(self) -> list[int]:
        """Returns the updates of all checkpoints, in order."""
        matches = (_NAME.fullmatch(path.name) for path in self.folder.glob("*.npz"))
        return sorted(int(match[1]) for match in matches if match)


def _check_size(archive: zipfile.ZipFile, variables: list[keras.Variable]) -> None:
    """Raises ValueError if an archive unpacks to more than the variables can hold."""
    unpacked = sum(info.file_size for info in archive.infolist())
    most = _BYTES_BESIDE_ARRAYS + 8 * sum(math.prod(variable.shape) for variable in variables)
    if unpacked > most:
        raise ValueError(f"it unpacks to {unpacked:,} bytes, and the model has at most {most:,}")


def _state(model: keras.Model) -> list[keras.Variable]:
    model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]


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
        self._first, self._started = 0, self._saved
        self._loss_state: Sequence[float] | None = None

    @contextlib.contextmanager
    def during_fit(
        self, step: int, started: float, loss_state: Sequence[float] | None = None
    ) -> Iterator[None]:
        """Makes SIGINT and SIGTERM wait for the end of an update, or of the block if none is left.

        A second one ends at once.

        Args:
            step: updates before this `fit`.
            started: when its seconds began, by `time.monotonic`. If it goes on from a checkpoint,
                that is earlier by the seconds that the checkpoint's note holds.
            loss_state: the state of the mean loss that the checkpoint's note holds, if this `fit`
                goes on from a checkpoint.

        Raises:
            KeyboardInterrupt: a signal has asked to end.
        """
        self._first, self._started, self._loss_state = step, started, loss_state
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
            note: dict[str, Any] = {SECONDS: time.monotonic() - self._started}
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
        again = " Ctrl-C again ends at once." if number == signal.SIGINT else ""
        print(f"\nSaving after this update.{again}", flush=True)

"""The folder that a training run keeps, so that it can go on after an interruption."""

import json
import pathlib
import zipfile

import keras
import numpy as np
import tensorflow as tf

import gpt1_keras
from gpt1_keras.files import atomic_path

_BATCHES_PER_CHECKPOINT = 200


class Run:
    """The folder of a run: its options, checkpoint, history, best model and result.

    Args:
        folder: path; made if it is not there.
        options: dict of what determines the run.

    Raises:
        ValueError: the folder holds a run with other options.
    """

    def __init__(self, folder, options):
        self.folder = pathlib.Path(folder)
        self.options = options
        self.history = self._read("history.json", [])
        self.result = self._read("result.json", None)
        before = self._read("options.json", self.options)
        changed = {
            name: (before.get(name), value)
            for name, value in self.options.items()
            if before.get(name) != value
        }
        if changed:
            raise ValueError(
                f"{folder} holds a run with other options: "
                + ", ".join(f"{name} was {old}, not {new}" for name, (old, new) in changed.items())
                + ". Choose another --output, or the same options."
            )
        self._write("options.json", self.options)
        self._checkpoint = self.folder / "checkpoint.npz"

    def restore(self, classifier):
        """Loads the last checkpoint, if there is one.

        Raises:
            ValueError: the checkpoint is damaged, or of another model.
        """
        if not self._checkpoint.is_file():
            return
        variables = _state(classifier)
        try:
            with np.load(self._checkpoint, allow_pickle=False) as arrays:
                values = [arrays[f"arr_{i}"] for i in range(len(variables))]
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"The checkpoint {self._checkpoint} is damaged: {error}.") from None
        for variable, value in zip(variables, values):
            variable.assign(value)

    def checkpointer(self, classifier):
        """A callback that saves a checkpoint every so many batches."""

        def on_batch_end(batch, logs=None):
            if (batch + 1) % _BATCHES_PER_CHECKPOINT == 0:
                self._save_checkpoint(classifier)

        return on_batch_end

    def finish_epoch(self, classifier, score):
        """Keeps a checkpoint, the model if it is the best so far, and last the epoch's score.

        So wherever this is cut off, a resumed run scores the epoch again.
        """
        self._save_checkpoint(classifier)
        if score > max((past["score"] for past in self.history), default=float("-inf")):
            with atomic_path(self.folder / "best") as temporary:
                classifier.save_to_preset(temporary)
        epoch = len(self.history)
        with tf.summary.create_file_writer(str(self.folder / "logs" / "validation")).as_default():
            tf.summary.scalar("epoch_score", score, step=epoch)
        self.history.append({"epoch": epoch + 1, "score": score})
        self._write("history.json", self.history)

    def finish(self, facts):
        """Writes and returns the result."""
        best = max(self.history, key=lambda past: past["score"])
        self.result = {
            **self.options,
            **facts,
            "score": best["score"],
            "best_epoch": best["epoch"],
            "history": self.history,
            "gpt1_keras": gpt1_keras.__version__,
            "tensorflow": tf.__version__,
        }
        self._write("result.json", self.result)
        self._checkpoint.unlink(missing_ok=True)
        return self.result

    def _save_checkpoint(self, classifier):
        arrays = [keras.ops.convert_to_numpy(variable) for variable in _state(classifier)]
        with atomic_path(self._checkpoint) as temporary:
            np.savez(temporary, *arrays)

    def _read(self, name, default):
        path = self.folder / name
        return json.loads(path.read_text()) if path.is_file() else default

    def _write(self, name, content):
        with atomic_path(self.folder / name) as temporary:
            pathlib.Path(temporary).write_text(json.dumps(content, indent=2) + "\n")


def _state(classifier):
    """All that training changes: weights, the optimizer's state, and that of random numbers."""
    classifier.optimizer.build(classifier.trainable_variables)
    return [*classifier.variables, *classifier.optimizer.variables]

"""The folder of a training run, from which it resumes after an interruption."""

import errno
import json
import os
import pathlib
import shutil
from typing import Any

import gpt1_keras
from gpt1_keras.files import atomic_path, remove_leftovers
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.tasks.base import RawTextTask
from training.runs.checkpoints import Checkpoints

# A task's preset holds its weights in float32 twice, and once with Adam's two moments.
_PRESET_BYTES_PER_PARAMETER = 16


class Run:
    """The folder of a run: its options, checkpoints, history and result.

    Args:
        folder: path; created by `start`.
        options: what determines the run.
        keep: how many checkpoints to keep.

    Attributes:
        history: list of dicts, the scores so far.
        result: dict, once the run has finished.
        checkpoints: `Checkpoints`.

    Raises:
        ValueError: the folder holds a run with other options.
    """

    def __init__(
        self, folder: str | os.PathLike[str], options: dict[str, Any], keep: int = 3
    ) -> None:
        self.folder = pathlib.Path(folder)
        self.options = options
        self.history: list[dict[str, Any]] = self._read("history.json", [])
        self.result: dict[str, Any] | None = self._read("result.json", None)
        self.checkpoints = Checkpoints(self.folder / "checkpoints", options, keep)
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

    def start(self) -> None:
        """Writes the options, and removes what a killed process was writing."""
        for folder in (self.folder, self.checkpoints.folder, self.folder / "snapshots"):
            remove_leftovers(str(folder))
        self._write("options.json", self.options)

    def add(self, entry: dict[str, Any]) -> None:
        """Adds an entry to the history."""
        self.history.append(entry)
        self._write("history.json", self.history)

    def save_snapshot(self, backbone: CausalBackbone, step: int) -> None:
        """Saves a backbone's weights, which are kept for good."""
        with atomic_path(self.folder / "snapshots" / f"{step:08d}.weights.h5") as temporary:
            backbone.save_weights(temporary)

    def save_preset(self, task: RawTextTask, name: str) -> None:
        """Writes a task as a preset, which replaces that of the same name.

        Raises:
            OSError: there is not enough space. (HDF5 itself would crash.)
        """
        path = self.folder / name
        free = shutil.disk_usage(self.folder).free
        needed = _PRESET_BYTES_PER_PARAMETER * task.count_params()
        if free < needed:
            raise OSError(
                errno.ENOSPC, f"The preset takes {needed:,} bytes, and {free:,} are free", str(path)
            )
        with atomic_path(path) as temporary:
            task.save_to_preset(temporary)

    def finish(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Writes and returns the result, and deletes the checkpoints."""
        self.result = {
            **self.options,
            **facts,
            "history": self.history,
            "gpt1_keras": gpt1_keras.__version__,
        }
        self._write("result.json", self.result)
        self.checkpoints.clear()
        return self.result

    def _read(self, name: str, default: Any) -> Any:
        path = self.folder / name
        return json.loads(path.read_text()) if path.is_file() else default

    def _write(self, name: str, content: Any) -> None:
        with atomic_path(self.folder / name) as temporary:
            pathlib.Path(temporary).write_text(json.dumps(content, indent=2) + "\n")

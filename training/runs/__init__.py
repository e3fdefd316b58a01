"""Fine-tuning and pre-training: the options of runs, their folders, checkpoints and devices."""

import os
import pathlib

_SAVED = ("checkpoints/step-*.npz", "result.json")  # a run's, in the folder or below it


def newest_saved(output: str | os.PathLike[str]) -> str | None:
    """Returns the path from which the same command goes on; None if nothing was saved."""
    folder = pathlib.Path(output)
    found = [path for pattern in _SAVED for path in folder.rglob(pattern)]
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    return None if newest is None else os.fspath(newest)

"""What a calibration leaves behind: its figures, its picture, and the preset's temperature."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from gpt1_keras.files import atomic_path, read_json
from gpt1_keras.tasks.calibration import FRESH_ARGUMENTS, Calibration
from training.evaluation.reliability import plot_reliability

REPORT, DIAGRAM = "calibration.json", "calibration.svg"
_TASK = "task.json"


def write_calibration(folder: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Writes the figures and the reliability diagram.

    Args:
        folder: of the run.
        content: of `Report.as_json`, with anything beside.
    """
    path = pathlib.Path(folder)
    plot_reliability(content, path / DIAGRAM)
    with atomic_path(path / REPORT) as temporary:
        text = json.dumps(content, indent=2, allow_nan=False)
        pathlib.Path(temporary).write_text(text + "\n")


def read_calibration(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Reads the figures of a run; None if it has none, as one of scores."""
    path = pathlib.Path(folder, REPORT)
    return read_json(path) if path.exists() else None


def check_is_folder(preset: str | os.PathLike[str]) -> None:
    """Raises ValueError unless a preset's files are the user's own to change."""
    if not pathlib.Path(preset, _TASK).is_file():
        raise ValueError(
            f"Expected the folder of a fine-tuned model, such as RUN/best. Received: {preset}."
        )


def store_calibration(preset: str | os.PathLike[str], calibration: Calibration) -> None:
    """Writes a calibration into a preset's description; the weights stay as they are.

    Args:
        preset: path of the folder.
        calibration: in the place of the preset's own.
    """
    path = pathlib.Path(preset, _TASK)
    task = read_json(path)
    kept = {name: value for name, value in task["config"].items() if name not in FRESH_ARGUMENTS}
    task["config"] = kept | calibration.get_config()
    with atomic_path(path) as temporary:
        pathlib.Path(temporary).write_text(json.dumps(task, indent=4))

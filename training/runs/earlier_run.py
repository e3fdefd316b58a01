"""Goes on from an earlier pre-training, from its weights before the rate decayed."""

import dataclasses
import os
import pathlib
from typing import Any

from gpt1_keras.files import contents_of, read_json
from training.runs.checkpoints import Checkpoints
from training.runs.run_folder import changed_options

_OF_THE_END = ("steps", "decay_steps")  # options that change no update before the decay


@dataclasses.dataclass(frozen=True)
class EarlierRun:
    """What an earlier run leaves to the one that goes on from it.

    Attributes:
        step: updates at the constant rate, after which the next run goes on.
        history: the earlier run's entries up to `step`.
    """

    step: int
    history: list[dict[str, Any]]
    checkpoints: Checkpoints


def shared_steps(folder: str | os.PathLike[str], options: dict[str, Any]) -> int:
    """Returns the number of updates before the rate of either run decays.

    Raises:
        ValueError: one of the two runs has the cosine schedule, whose rate depends on the number
            of updates; or they differ in options besides `steps` and `decay_steps`.
    """
    path = pathlib.Path(folder, "options.json")
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} is not a pre-training: it has no options.json. {contents_of(folder)}"
        )
    before = read_json(path)
    if options.get("decay_steps") is None or before.get("decay_steps") is None:
        raise ValueError(
            f"Only a run at a constant rate can go on from another: both need --decay-steps. "
            f"Received: {before.get('decay_steps')} in {folder}, and {options.get('decay_steps')}."
        )
    changed = changed_options(before, options, besides=_OF_THE_END)
    if changed:
        raise ValueError(f"{folder} holds a run with other options: {changed}.")
    return min(run["steps"] - run["decay_steps"] for run in (before, options))


def find_earlier_run(folder: str | os.PathLike[str], options: dict[str, Any]) -> EarlierRun:
    """Finds the weights that a run can go on from."""
    folder = pathlib.Path(folder)
    last = shared_steps(folder, options)
    checkpoints = Checkpoints(folder / "checkpoints", options)
    step = checkpoints.newest(at_most=last)
    if not step:
        raise ValueError(
            f"{folder} has no checkpoint of at most {last} updates, where the first of the two "
            "decays starts."
        )
    path = folder / "history.json"
    history = read_json(path, list) if path.exists() else []
    return EarlierRun(step, [entry for entry in history if entry["step"] <= step], checkpoints)

"""The folder of a training run, from which it, or a later run, goes on."""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Collection
from typing import Any

import gpt1_keras
from gpt1_keras.files import (
    atomic_path,
    check_writable,
    contents_of,
    read_json,
    remove_leftovers,
    write_json,
)
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.preset_files import is_handle
from gpt1_keras.presets import PRETRAINED, find_preset
from gpt1_keras.tasks.task import Task
from training.runs.checkpoints import Checkpoints
from training.runs.finetune_options import FinetuneOptions
from training.runs.pretrain_options import PretrainOptions

TRIALS = "trials"  # the folder of a search's runs
DATA = "data_fingerprint"  # among a run's options: of its examples, by what they are for

_OPTIONS = "options.json"
_WEIGHTS = (".h5", ".safetensors", ".bin")  # of Keras and of `transformers`
_DIGITS = 16
_OF_THE_END = ("steps", "decay_steps")  # options that change no update before the decay
_FOLDERS = ("best", "checkpoints", "logs", "preset", "snapshots")  # that a run writes


class Run:
    """The folder of a run: its options, checkpoints, history and result.

    Args:
        folder: path; need not exist.
        keep: how many checkpoints to keep.
        keep_step: a number of updates whose checkpoint is kept for good.

    Attributes:
        history: list of dicts, the scores so far.

    Raises:
        ValueError: the folder holds a run with other options, or a file of it is damaged.
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
        self.history: list[dict[str, Any]] = self._read("history.json", list) or []
        self.result: dict[str, Any] | None = self._read("result.json", dict)
        self.checkpoints = Checkpoints(self.folder / "checkpoints", options, keep, keep_step)
        changed = changed_options(recorded_options(folder) or options, options)
        if changed:
            raise ValueError(
                f"{folder} holds a run with other options: {changed}. Choose another --output, or "
                "the same options."
            )

    def prepare(self, *sources: str | os.PathLike[str]) -> None:
        """Checks the folder, and removes what a killed process was writing."""
        for source in map(pathlib.Path, sources):
            self._check_apart(source.resolve())
        check_writable(self.folder)
        for folder in (self.folder, self.checkpoints.folder, self.folder / "snapshots"):
            remove_leftovers(folder)

    def choose(self, options: dict[str, Any]) -> None:
        """Replaces options by those that were chosen for the data. Call it before `start`."""
        self.options.update(options)  # in place, as the checkpoints keep them too

    def keep_data(self, data: dict[str, dict[str, Any]]) -> None:
        """Keeps the fingerprints of the run's examples among its options. Call it before `start`.

        Args:
            data: from `"training"` and `"validation"` to `Examples.fingerprint`.

        Raises:
            ValueError: the folder holds a run on other examples. (Those of earlier versions do not
                say on which.)
        """
        changed = changed_data(recorded_options(self.folder).get(DATA, {}), data)
        if changed:
            raise ValueError(
                f"{self.folder} holds a run on other data: {changed}. Choose another --output to "
                "train anew, or give the same data."
            )
        self.choose({DATA: data})

    def start(self) -> None:
        """Writes the options. Call it when all that they name has been found.

        From then on, a run with other options cannot use the folder.
        """
        write_json(self.folder / _OPTIONS, self.options)

    def go_on_after(self, history: list[dict[str, Any]]) -> None:
        """Starts with the history of an earlier run."""
        self.history = history
        write_json(self.folder / "history.json", self.history)

    def add(self, entry: dict[str, Any]) -> None:
        """Adds an entry to the history."""
        self.history.append(entry)
        write_json(self.folder / "history.json", self.history)

    def save_snapshot(self, backbone: CausalBackbone, step: int) -> None:
        """Saves a backbone's weights, which are kept for good."""
        backbone.save_weights(self.folder / "snapshots" / f"{step:08d}.weights.h5")

    def save_preset(self, task: Task, name: str) -> None:
        """Writes a task as a preset; an earlier preset of the same name is replaced.

        Raises:
            OSError: it cannot be written, as when the disk is full; an earlier one then stays.
        """
        with atomic_path(self.folder / name) as temporary:
            task.save_to_preset(temporary)

    def finish(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Writes and returns the result, and deletes the checkpoints that are not kept for good."""
        self.result = {
            **self.options,
            **facts,
            "history": self.history,
            "gpt1_keras": gpt1_keras.__version__,
        }
        write_json(self.folder / "result.json", self.result)
        self.checkpoints.clear()
        return self.result

    def _check_apart(self, source: pathlib.Path) -> None:
        folder = self.folder.resolve()
        written = [folder / name for name in _FOLDERS]
        if source in (folder, *folder.parents):
            raise ValueError(f"The output {folder} must not lie within {source}, which is read.")
        overwritten = [path for path in written if path in (source, *source.parents)]
        if overwritten:
            raise ValueError(f"{source} is read, and the output would replace {overwritten[0]}.")

    def _read(self, name: str, kind: type) -> Any:
        path = self.folder / name
        return read_json(path, kind) if path.exists() else None


def facts_of(options: FinetuneOptions | PretrainOptions) -> dict[str, Any]:
    """Returns what a run's folder keeps: the options, and a hash of the weights it starts from.

    So no run goes on with other weights of the same name, and no table mixes the two.
    """
    preset = options.initial_weights
    fingerprint = None if preset is None else _fingerprint(preset)
    return {**dataclasses.asdict(options), "preset_fingerprint": fingerprint}


def _fingerprint(preset: str) -> str:
    total = hashlib.sha256()
    for path in sorted(find_preset(preset).iterdir()):
        if path.suffix in _WEIGHTS:
            with open(path, "rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:_DIGITS]


def recorded_options(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the options of the run that a folder holds; none if it holds no run."""
    path = pathlib.Path(folder, _OPTIONS)
    # A fine-tuning of an earlier version, which does not say, trained all weights at once.
    return {"head_first": False, **read_json(path)} if path.exists() else {}


def preset_folders(*presets: str | None) -> list[str]:
    """Returns the presets that are a user's folders; the others ship or are downloaded."""
    named = [preset for preset in presets if preset is not None]
    return [preset for preset in named if preset not in PRETRAINED and not is_handle(preset)]


def changed_data(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> str:
    """Says what changed in examples since a run kept their fingerprints; empty if nothing did."""
    changes = []
    for name in before.keys() & now.keys():
        old, new = before[name], now[name]
        changed = [part for part in ("texts", "labels") if old[part] != new[part]]
        if old["examples"] != new["examples"]:
            changes.append(
                f"it had {old['examples']:,} {name} examples, and there are {new['examples']:,}"
            )
        elif changed:
            changes.append(
                f"the {' and the '.join(changed)} of its {new['examples']:,} {name} examples have "
                "changed"
            )
    return "; ".join(sorted(changes))


def changed_options(
    before: dict[str, Any], now: dict[str, Any], besides: Collection[str] = ()
) -> str:
    """Says which options changed, except `besides`; empty if none did."""
    return ", ".join(
        f"{name} was {before.get(name)}, not {value}"
        for name, value in now.items()
        if name not in besides and before.get(name) != value
    )


@dataclasses.dataclass(frozen=True)
class EarlierRun:
    """An earlier run, as far as a run that goes on from it needs it.

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

"""What a fine-tuned classifier leaves to a run that goes on from it with more of a user's files."""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpt1_keras.cli import warn
from gpt1_keras.files import digest_of, read_json
from gpt1_keras.labelled_files import (
    TableOptions,
    as_label,
    columns_of_run,
    open_table,
    shown_names,
)
from gpt1_keras.presets import find_preset
from gpt1_keras.tasks.labels import number_of
from training.datasets.user_files import Dataset, EarlierFiles, UserFiles, keep_quiet
from training.evaluation.calibration import CALIBRATION
from training.evaluation.fine_tuned_models import MODELS

FILES = "files"  # in result.json: digests of the files that a run has learned from, by their paths
VALIDATION = "validation.jsonl"  # in a run's folder: what it has held back
_TASK, _CLASS = "task.json", "class_name"


def earlier_files(
    preset: str, dataset: UserFiles, tell: Callable[[str], None] = keep_quiet
) -> EarlierFiles | None:
    """Returns what a preset has learned from, if a run on a data set goes on with its classes.

    It does if the preset is a classifier of the same texts, one of its classes is one of the data
    set, and its classes are names: numbers may mean something else in each file.

    Args:
        preset: of a model that was fine-tuned, or not.
        tell: is called with what the run goes on with, or why it does not.
    """
    known = _classes_of(preset, dataset)
    if not known or dataset.class_names is None:
        return None
    plain = {as_label(name).lower(): name for name in known}
    found = {as_label(name).lower(): name for name in dataset.class_names}
    train = ", ".join(dataset.paths["train"])
    if not plain.keys() & found.keys() or all(number_of(name) is not None for name in known):
        why = "numbers may mean something else" if plain.keys() & found.keys() else "none is shared"
        tell(
            f"{preset} has the classes {shown_names(known)}, and {train} has "
            f"{shown_names(dataset.class_names)}: {why}, so the head starts afresh."
        )
        return None
    told = [f"{preset} goes on, with its classes {shown_names(known)}"]
    if missing := [name for plain_name, name in plain.items() if plain_name not in found]:
        told.append(f"{train} has no {shown_names(missing)}, which stay")
    if new := [name for plain_name, name in found.items() if plain_name not in plain]:
        told.append(f"{shown_names(new)} are new")
    tell(f"{'; '.join(told)}. (--fresh-head starts with the classes of {train} alone.)")
    return _files_of(preset, known, dataset, tell)


def long_texts_of(preset: str, dataset: Dataset) -> dict[str, float] | None:
    """Returns how a fine-tuned preset reads long texts, as arguments of its preprocessor.

    None if it is not fine-tuned, or for other texts.
    """
    arguments = _preprocessing(_config(find_preset(preset, weights=False)), dataset)
    if arguments is None:
        return None
    return {name: arguments[name] for name in ("tail", "windows") if name in arguments}


def sure_precision(preset: str) -> float | None:
    """Returns the precision that a preset's sure answers have; None if it has no threshold."""
    folder = find_preset(preset, weights=False)
    if _config(folder).get("sure_threshold") is None:
        return None
    sure = _read(folder.parent / CALIBRATION).get("sure") or {}
    if "precision" not in sure:
        warn(
            f"Answers lose `is_sure`: {folder.parent} has no {CALIBRATION} that says which "
            "precision was asked for. Run gpt1 calibrate --sure-precision again."
        )
    return sure.get("precision")


def _files_of(
    preset: str, known: Sequence[str], dataset: UserFiles, tell: Callable[[str], None]
) -> EarlierFiles:
    run = find_preset(preset, weights=False).parent
    result = _read(run / "result.json")
    table: TableOptions = {
        "usual": columns_of_run(run),
        "sheet": result.get("sheet"),
        "header_row": result.get("header_row"),
    }
    recorded: Mapping[str, str] = result.get(FILES) or {}
    changed = [path for path in recorded if not _is_as_recorded(path, recorded, dataset, table)]
    train = [path for path in recorded if path not in changed]
    if train:
        tell(f"It learns again from {', '.join(train)}, beside the new examples.")
    if changed or not recorded:
        what = ", ".join(changed) if changed else f"the training data of {preset}"
        tell(
            f"Missing or changed: {what}. The model may forget it; give it again by --train, "
            "before the new file."
        )
    held_back: TableOptions = table if result.get("validation") else {"usual": table["usual"]}
    validation = result.get("validation") or os.fspath(run / VALIDATION)
    is_there = recorded and pathlib.Path(validation).is_file()
    return EarlierFiles(list(known), train, table, (validation, held_back) if is_there else None)


def _is_as_recorded(
    path: str, recorded: Mapping[str, str], dataset: UserFiles, table: TableOptions
) -> bool:
    try:
        open_table(path, wanted=[(*dataset.fields, "label")], **table)
        return digest_of(path) == recorded[path]
    except (OSError, ValueError):
        return False


def _classes_of(preset: str, dataset: UserFiles) -> list[str]:
    """Returns the classes of a preset's head, if it is one for a data set of single labels."""
    config = _config(find_preset(preset, weights=False))
    names = config.get("class_names") or []
    is_same = _preprocessing(config, dataset) is not None
    return names if is_same and len(names) > 1 and config.get("activation") != "sigmoid" else []


def _preprocessing(config: dict[str, Any], dataset: Dataset) -> dict[str, Any] | None:
    """Returns the arguments of a task's preprocessor; None if it is for other texts."""
    arguments = (config.get("preprocessor") or {}).get("config", {})
    is_same = [*arguments.get("fields", ())] == [*dataset.fields]
    return arguments if is_same and config[_CLASS] == MODELS[dataset.kind].__name__ else None


def _config(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the arguments of a preset's task, and the name of its class; none without a task."""
    task = _read(folder / _TASK)
    return {**task.get("config", {}), _CLASS: task.get(_CLASS)}


def _read(path: pathlib.Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}

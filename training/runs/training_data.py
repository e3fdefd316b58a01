"""What a fine-tuning learns from: a data set or users' files, and the examples of its run."""

import dataclasses
import os
import pathlib
from typing import Any

from gpt1_keras.cli import warn
from gpt1_keras.files import read_json
from gpt1_keras.handles import is_handle
from gpt1_keras.labelled_files import parse_columns
from gpt1_keras.presets.pretrained import preset_in
from training.datasets.data_options import DataOptions
from training.datasets.labelled_examples import LabelledExamples, load_examples
from training.datasets.paper_datasets import find_dataset
from training.datasets.user_files import Dataset, find_user_files
from training.runs.finetune_options import VALIDATION_SHARE, FinetuneOptions
from training.runs.run_folder import DATA, changed_data

_TRAINING = "training"  # examples, among a run's fingerprints


def find_dataset_of(options: FinetuneOptions) -> Dataset:
    """Returns the data set that a run learns from: what `task` names, or the user's files."""
    if options.task is not None:
        return find_dataset(options.task)
    assert options.train is not None  # see `FinetuneOptions`
    return find_user_files(
        options.train,
        options.validation,
        parse_columns(options.columns),
        VALIDATION_SHARE if options.validation_share is None else options.validation_share,
        options.seed,
        options.scores,
    )


def load_training_examples(
    options: FinetuneOptions, dataset: Dataset, data: DataOptions
) -> LabelledExamples:
    """Loads the labelled examples that a run learns from."""
    train = load_examples(dataset, "train", data).labelled()
    if options.limit_examples is not None:
        train = train.sample(options.limit_examples, options.seed)
    if not len(train):
        raise ValueError(f"The training data of {options.task or options.train} has no label.")
    return train


def load_validation_examples(dataset: Dataset, data: DataOptions) -> LabelledExamples:
    """Loads the labelled examples that a run chooses its best epoch on."""
    return load_examples(dataset, "validation", data).labelled()


def fingerprints(train: LabelledExamples, validation: LabelledExamples) -> dict[str, Any]:
    """Returns what `Run.keep_data` takes."""
    return {_TRAINING: train.fingerprint(), "validation": validation.fingerprint()}


def training_examples_of(
    preset: str | os.PathLike[str], data: DataOptions
) -> LabelledExamples | None:
    """Loads what a fine-tuned preset has learned from, as result.json beside it says.

    Returns:
        The examples; None, with a warning that says why, where they cannot be found; None for a
        handle.
    """
    if is_handle(preset):  # whose run is elsewhere
        return None
    path = preset_in(pathlib.Path(preset).absolute()).parent / "result.json"
    try:
        result = read_json(path)
        names = {field.name for field in dataclasses.fields(FinetuneOptions)} & result.keys()
        options = FinetuneOptions(**{name: result[name] for name in names})
        train = load_training_examples(options, find_dataset_of(options), data)
        changed = changed_data(result.get(DATA, {}), {_TRAINING: train.fingerprint()})
        if changed:
            raise ValueError(f"{options.task or options.train} has changed: {changed}.")
        return train
    except (OSError, ValueError, TypeError) as error:
        warn(f"No baselines, as what the model has learned from was not found: {error}")
        return None

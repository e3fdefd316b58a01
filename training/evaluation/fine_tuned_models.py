"""Fine-tuned models, and the examples that they are evaluated or calibrated on."""

import os
from typing import Any

import gpt1_keras
from gpt1_keras.examples import Examples
from gpt1_keras.labelled_files import table_options
from gpt1_keras.presets import load_task
from gpt1_keras.tasks.task import Task
from training.datasets.data_options import DataOptions, ExampleOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import (
    CLASSIFICATION,
    MULTIPLE_CHOICE,
    SIMILARITY,
    find_dataset,
)
from training.datasets.user_files import Dataset, user_files_for

MODELS: dict[str, Any] = {
    CLASSIFICATION: gpt1_keras.GPT1TextClassifier,
    SIMILARITY: gpt1_keras.GPT1TextSimilarity,
    MULTIPLE_CHOICE: gpt1_keras.GPT1MultipleChoice,
}


def load_model(path: str | os.PathLike[str]) -> tuple[Task, str]:
    """Loads a model that `gpt1 finetune` wrote.

    Args:
        path: of its preset, such as `RUN/best`.

    Returns:
        `(model, kind)`: one of `MODELS`, and its key.
    """
    model: Task = load_task(path, *MODELS.values())
    kinds = {cls: kind for kind, cls in MODELS.items()}
    return model, next(kinds[cls] for cls in type(model).__mro__ if cls in kinds)


def load_for_model(
    path: str | os.PathLike[str],
    model: Task,
    kind: str,
    asked: ExampleOptions,
    data: DataOptions,
) -> tuple[dict[str, str], Dataset, Examples]:
    """Loads a split of a data set, or a file, and checks that the model fits it.

    Args:
        path: of the model's preset, for messages.
        model, kind: as `load_model` returns them.

    Returns:
        `(described, dataset, examples)`: what the examples are, for a report; their data set; and
        the examples, some of which may have no label.
    """
    dataset: Dataset
    if asked.file is not None:
        described, role = {"file": str(asked.file)}, "test"
        dataset = user_files_for(model, kind, asked.file, table_options(asked, path))
    else:
        assert asked.task is not None  # see `ExampleOptions`
        described, role = {"task": asked.task, "split": asked.split}, asked.split
        dataset = find_dataset(asked.task)
    examples = load_examples(dataset, role, data)
    for what, found, expected in (
        ("is for", kind, dataset.kind),
        ("has the classes", getattr(model, "class_names", None), examples.class_names),
        ("takes", model.preprocessor.fields, tuple(dataset.fields)),
    ):
        if found != expected:
            raise ValueError(f"{path} {what} {found}; the task has {expected}.")
    return described, dataset, examples

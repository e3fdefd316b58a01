"""The examples that a fine-tuned model is evaluated or calibrated on."""

import dataclasses
import os
from typing import Any

from gpt1_keras.cli import option
from gpt1_keras.tasks.base import RawTextTask
from training.datasets.labelled_examples import LabelledExamples, load_examples
from training.datasets.tasks import TASKS, Task, find_task
from training.datasets.user_files import UserFileTask, user_file_task_of


@dataclasses.dataclass(frozen=True)
class ExampleOptions:
    """Which examples a program reads."""

    task: str | None = option(f"one of {', '.join(sorted(TASKS))}; or else", None)
    file: str | None = option(
        "your own .csv, .tsv or .jsonl, with the columns of the training file", None
    )
    split: str = option("of the task", "validation", choices=("train", "validation", "test"))


def load_for_model(
    path: str | os.PathLike[str],
    model: RawTextTask,
    kind: str,
    task: str | None,
    file: str | os.PathLike[str] | None,
    split: str,
    data_dir: str | None = None,
    download: bool = False,
) -> tuple[dict[str, str], Task | UserFileTask, LabelledExamples]:
    """Loads a split of a task, or a file, and checks that the model is for it.

    Args:
        path: of the model's preset, for messages.
        model, kind: as `training.datasets.task_models.load_model` returns them.
        task, file: exactly one of them.
        split: of the task.
        data_dir, download: as in `load_examples`.

    Returns:
        What the examples are, for a report; their task; and they, some maybe without a label.

    Raises:
        FileNotFoundError: the data set or the file does not exist.
        ValueError: an unknown task, or a model for another kind of task or other classes.
    """
    data: Task | UserFileTask
    if file is not None:
        described, role, data = {"file": str(file)}, "test", user_file_task_of(model, kind, file)
    else:
        assert task is not None
        described, role, data = {"task": task, "split": split}, split, find_task(task)
    examples = load_examples(data, role, data_dir, download)
    for what, found, expected in (
        ("is for", kind, data.kind),
        ("has the classes", getattr(model, "class_names", None), examples.class_names),
        ("takes", model.preprocessor.fields, tuple(data.fields)),
    ):
        if found != expected:
            raise ValueError(f"{path} {what} {found}; the task has {expected}.")
    return described, data, examples


def check_one_source(task: Any, file: Any) -> None:
    """Raises ValueError unless exactly one of a task and a file is given."""
    if (task is None) == (file is None):
        raise ValueError("Give either --task or --file.")

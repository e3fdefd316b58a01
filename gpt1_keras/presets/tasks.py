"""Loads the task that a preset holds, of any class."""

import os
import pathlib
from typing import Any, TypeVar

import keras

from gpt1_keras.convert.loader import OpenAIGPTLoader
from gpt1_keras.files import read_json
from gpt1_keras.presets.pretrained import find_preset
from gpt1_keras.tasks.task import Task
from gpt1_keras.upstream import TASK_CONFIG_FILE, get_preset_loader

_Task = TypeVar("_Task", bound=Task)


def load_task(preset: str | os.PathLike[str], *classes: type[_Task]) -> _Task:
    """Loads the task that a preset holds.

    Args:
        preset: a name, a folder or a handle, as in `find_preset`.
        *classes: the accepted classes of tasks. By default all are accepted, also your own
            subclasses that `keras.saving.register_keras_serializable` registers.

    Raises:
        FileNotFoundError: there is no such preset, or it holds no task.
        ValueError: the task is not of one of the classes, is damaged, or its class is not
            registered.
        OSError, ImportError: see `find_preset`.
    """
    folder = find_preset(preset)
    task_cls = _task_class(preset, folder)
    if classes and not issubclass(task_cls, classes):
        expected = " or ".join(each.__name__ for each in classes)
        raise ValueError(f"{preset} is a {task_cls.__name__}; expected a {expected}.")
    return task_cls.from_preset(os.fspath(folder))


def _task_class(preset: str | os.PathLike[str], folder: pathlib.Path) -> Any:
    """Returns the class of the task; see `load_task` for the errors."""
    path = folder / TASK_CONFIG_FILE
    if not path.is_file():
        loader = get_preset_loader(os.fspath(folder))
        if isinstance(loader, OpenAIGPTLoader):
            return loader.task_class()
        raise FileNotFoundError(f"{preset} is not a preset of a task: it has no task.json.")
    try:
        description = read_json(path)
        name, found = str(description["registered_name"]), description["class_name"]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} does not describe a task: {error!r}.") from None
    task_cls = keras.saving.get_registered_object(name)
    if not (isinstance(task_cls, type) and issubclass(task_cls, Task)):
        raise ValueError(f"{preset} is a {found}, which is not a registered task of raw texts.")
    return task_cls

"""The registry of tasks for serving: their signatures, metrics and graphs for devices.

This file imports nothing of `serving`. The code that exports tasks has the entries of our own
tasks, and looks up users' entries here.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras

from gpt1_keras.tasks.task import Task


@dataclasses.dataclass(frozen=True)
class TaskEntry:
    """The parts that exporters need for a task. They refuse a task whose part is None.

    Args:
        signatures: maps a `serving.export.signature.ExportSpec` to the
            `serving.export.signature.Signatures` of a SavedModel; for a fine-tuned task,
            `serving.export.task_signatures.task_signatures` makes them.
        metric: maps the model to its `serving.export.validation.Metric` on labelled examples.
        device_graph: maps a `serving.tflite.task_graphs.DeviceSpec` to the `DeviceGraph` of a
            .tflite file.
    """

    signatures: Callable[[Any], Any] | None = None
    metric: Callable[[Any], Any] | None = None
    device_graph: Callable[[Any], Any] | None = None


_registered: dict[type, TaskEntry] = {}


def register_task(task_cls: type, entry: TaskEntry) -> None:
    """Registers a task, and its subclasses without their own entry, with the exporters."""
    _registered[task_cls] = entry


def find_part(
    model: Task, ours: Mapping[type, TaskEntry], part: str, purpose: str
) -> Callable[[Any], Any]:
    """Returns a part of the entry of a model's class, or of the nearest base class with an entry.

    Args:
        model: a task.
        ours: the entries of gpt1_keras's tasks. Entries that users register replace them.
        part: the name of a field of `TaskEntry`.
        purpose: what a task without this part cannot do, for the message.

    Raises:
        ValueError: no such class is registered, its entry leaves this part out, the model has no
            preprocessor, or Keras's backend is not TensorFlow.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "Models are exported with Keras's backend TensorFlow, which loads what the other "
            f"backends saved. Received: KERAS_BACKEND={keras.backend.backend()}."
        )
    entries, name = {**ours, **_registered}, type(model).__name__
    for task_cls in type(model).__mro__:
        if task_cls in entries:
            break
    else:
        raise ValueError(
            f"Expected a registered task: {', '.join(each.__name__ for each in entries)}. "
            f"Received: {name}. To register it, call serving.registry.register_task({name}, "
            "TaskEntry(signatures=...))."
        )
    if model.preprocessor is None:
        raise ValueError(
            f"A model needs its preprocessor to take raw text. Received: a {name} without one."
        )
    found = getattr(entries[task_cls], part)
    if found is None:
        raise ValueError(
            f"A {name} cannot {purpose}: its serving.registry.TaskEntry has no {part}."
        )
    return found

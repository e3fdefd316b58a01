"""What serving knows about each task: its signatures, its metric, its graph for devices."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpt1_keras.tasks.base import RawTextTask

if TYPE_CHECKING:
    from serving.export.batching import Batching
    from serving.export.decoder.int8_block import Int8Block
    from serving.export.metrics import Metric
    from serving.export.signatures import Signatures
    from serving.tflite.device_graph import DeviceGraph


@dataclasses.dataclass(frozen=True)
class TaskEntry:
    """What the exporters need to know about a task; each field is a class or a function.

    Args:
        signatures: from `(model, batching, int8, blocks)` to the SavedModel's signatures; most
            often a subclass of `serving.export.task_signatures.TaskSignatures`, whose arguments
            they are.
        metric: from the model to what is measured on labelled examples; None if nothing is.
        device_graph: from `(model, max_bytes, sequence_length, num_choices)` to the signatures of a
            .tflite file; None if the task has no such file.
    """

    signatures: (
        "Callable[[RawTextTask, Batching | None, bool, Sequence[Int8Block] | None], Signatures]"
    )
    metric: "Callable[[RawTextTask], Metric] | None" = None
    device_graph: "Callable[[RawTextTask, list[int], int, int | None], DeviceGraph] | None" = None


_registered: dict[type, TaskEntry] = {}


def register_task(task_cls: type, entry: TaskEntry) -> None:
    """Makes a task, and its subclasses that have no entry of their own, known to the exporters."""
    _registered[task_cls] = entry


def find_task(model: RawTextTask) -> TaskEntry:
    """Returns the entry of a model's class, or of the nearest class that it inherits from.

    Raises:
        ValueError: no such class is registered, or the model has no preprocessor.
    """
    entries = _built_in_tasks() | _registered
    for task_cls in type(model).__mro__:
        if task_cls in entries:
            break
    else:
        name = type(model).__name__
        raise ValueError(
            f"Expected a registered task: {', '.join(each.__name__ for each in entries)}. "
            f"Received: {name}. To register it, call serving.registry.register_task({name}, "
            "TaskEntry(signatures=...))."
        )
    if model.preprocessor is None:
        raise ValueError(
            f"A model needs its preprocessor to take raw text. Received: a {type(model).__name__} "
            "without one."
        )
    return entries[task_cls]


@functools.cache
def _built_in_tasks() -> dict[type, TaskEntry]:
    """The tasks of gpt1_keras."""
    # Imported here, because the packages of these modules look up tasks themselves.
    from gpt1_keras import (
        GPT1CausalLM,
        GPT1MultipleChoice,
        GPT1TextClassifier,
        GPT1TextSimilarity,
    )
    from serving.export import metrics
    from serving.export.choice_signatures import ChoiceSignatures
    from serving.export.language_model.signatures import LanguageModelSignatures
    from serving.export.task_signatures import class_or_score_signatures
    from serving.tflite.choice_graph import ChoiceGraph
    from serving.tflite.language_model_graph import NextTokenGraph
    from serving.tflite.task_graphs import ClassOrScoreGraph, SimilarityGraph

    class_or_score = TaskEntry(
        class_or_score_signatures, metrics.class_or_score_metric, ClassOrScoreGraph
    )
    return {
        GPT1TextClassifier: class_or_score,
        GPT1TextSimilarity: dataclasses.replace(class_or_score, device_graph=SimilarityGraph),
        GPT1MultipleChoice: TaskEntry(ChoiceSignatures, metrics.choice_metric, ChoiceGraph),
        GPT1CausalLM: TaskEntry(
            LanguageModelSignatures, metrics.language_model_metric, NextTokenGraph
        ),
    }

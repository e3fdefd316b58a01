"""Compares an export with its model on labelled examples: what the export's options cost."""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from gpt1_keras.tasks.task import Task
from serving.export.export_spec import fields_of
from serving.export.exported_tasks import metric_of
from serving.export.text_inputs import as_tensors
from serving.export_names import DEFAULT_SIGNATURE
from serving.server.models.servable import Servable

_BATCH_SIZE = 32


class Validation:
    """Labelled examples that a model and its export answer.

    Args:
        examples: the model's inputs and `label`, as `gpt1_keras.labelled_files.read_rows` returns
            them: a class, a score, or the index of the right choice. A language model's examples
            have no label.

    Raises:
        ValueError: the task has no metric; or examples lack an input of the model, or have unknown
            labels.
    """

    def __init__(
        self,
        model: Task,
        examples: Sequence[Mapping[str, Any]],
        batch_size: int = _BATCH_SIZE,
    ) -> None:
        fields = fields_of(model)
        self._metric = metric_of(model)
        self._labels = self._metric.read_labels(examples)
        self._size = len(examples)
        self._requests = [
            as_tensors(examples[start : start + batch_size], fields)
            for start in range(0, len(examples), batch_size)
        ]

    def compare(
        self, function: Callable[..., Mapping[str, tf.Tensor]], path: str | os.PathLike[str]
    ) -> dict[str, Any]:
        """Answers the examples by the model and by its export.

        Args:
            function: the unchanged model's signature `serving_default`.
            path: the export's folder; the C++ runtime runs it.

        Returns:
            dict: `examples`, their number; `metric`, its name; and its values `before`, for the
            model, and `after`, for the export.
        """
        servable = Servable("export", 1, pathlib.Path(path))
        before, after = [], []
        for texts in self._requests:
            found = function(**texts)
            before.append({key: tensor.numpy() for key, tensor in found.items()})
            protos = {field: tf.make_tensor_proto(tensor) for field, tensor in texts.items()}
            after.append(servable.predict(DEFAULT_SIGNATURE, protos))
        return {
            "examples": self._size,
            "metric": self._metric.name,
            "before": float(self._metric.measure(before, self._labels)),
            "after": float(self._metric.measure(after, self._labels)),
        }

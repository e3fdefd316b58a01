"""Measures what an export's options cost: its metric and its model's on labelled examples."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from gpt1_keras.labelled_files import Row, numbers_of_labels
from gpt1_keras.tasks.task import Task
from serving.export.export_metadata import fields_of
from serving.export.text_inputs import as_tensors
from serving.export_names import DEFAULT_SIGNATURE
from serving.server.models.servable import Servable

_BATCH_SIZE = 32
_WHAT = "The validation data"  # for messages
Outputs: TypeAlias = Sequence[Mapping[str, np.ndarray]]  # of each request, by name


@dataclasses.dataclass(frozen=True)
class Metric:
    """A measure of a task's answers.

    Args:
        name: the name for the metadata.
        read_labels: from rows to their labels; it raises ValueError for an unknown label.
        measure: from the outputs of `serving_default` and these labels to a number.
    """

    name: str
    read_labels: Callable[[Sequence[Row]], list[Any]]
    measure: Callable[[Outputs, list[Any]], float]


def class_or_score_metric(model: Task) -> Metric:
    """Returns accuracy; for a task that answers with a number, the correlation."""
    names = model.class_names
    if names is None:
        return Metric("Pearson correlation", lambda rows: _scores(rows, model), _correlation)

    def read_class_names(rows: Sequence[Row]) -> list[bytes]:
        return [names[number].encode() for number in numbers_of_labels(rows, _WHAT, names)]

    return Metric("accuracy", read_class_names, lambda *args: _accuracy("label", *args))


def choice_metric(model: Task) -> Metric:
    """Returns accuracy; labels are the indices of the right choices."""
    choices = fields_of(model)[-1]
    return Metric(
        "accuracy",
        lambda rows: numbers_of_labels(rows, _WHAT, choices=choices),
        lambda *args: _accuracy("choice", *args),
    )


def language_model_metric(model: Task) -> Metric:
    """Returns the mean log-probability, in nats, of all tokens but each first; it has no labels."""
    return Metric("log-probability of a token", lambda rows: [], _log_probability)


def _scores(rows: Sequence[Row], model: Task) -> list[float]:
    scores = numbers_of_labels(rows, _WHAT, score_range=model.score_range)
    if not np.ptp(scores) > 0:
        raise ValueError(
            f"A correlation needs examples of different scores. Received: {scores[:5]}."
        )
    return scores


def _joined(outputs: Outputs, name: str) -> np.ndarray:
    return np.concatenate([each[name] for each in outputs])


def _accuracy(name: str, outputs: Outputs, labels: list[Any]) -> float:
    return np.mean(_joined(outputs, name) == np.array(labels))


def _correlation(outputs: Outputs, labels: list[Any]) -> float:
    scores = _joined(outputs, "score")
    # If all answers are equal, the correlation is undefined, and they say nothing of the labels.
    return float(np.corrcoef(scores, labels)[0, 1]) if np.ptp(scores) else 0.0


def _log_probability(outputs: Outputs, labels: list[Any]) -> float:
    counts = np.maximum(_joined(outputs, "num_tokens") - 1, 0)
    is_scored = counts > 0  # without a token to predict, a score is minus infinity
    scores = _joined(outputs, "score")[is_scored]
    return np.sum(scores * counts[is_scored]) / np.sum(counts)


class Validation:
    """Labelled examples that a model and its export answer.

    Args:
        metric: the measure of the model's answers.
        examples: the model's inputs and `label`, as `gpt1_keras.labelled_files.read_rows` returns
            them: a class, a score, or the index of the right choice. A language model's examples
            have no label.

    Raises:
        ValueError: examples lack an input of the model, or have unknown labels.
    """

    def __init__(
        self,
        model: Task,
        metric: Metric,
        examples: Sequence[Mapping[str, Any]],
        batch_size: int = _BATCH_SIZE,
    ) -> None:
        fields = fields_of(model)
        self._metric = metric
        self._requests = [
            as_tensors(examples[start : start + batch_size], fields)
            for start in range(0, len(examples), batch_size)
        ]
        rows = [
            each if isinstance(each, Row) else Row(dict(each), number)
            for number, each in enumerate(examples, 1)
        ]
        self._size, self._labels = len(rows), metric.read_labels(rows)

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

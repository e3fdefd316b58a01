"""Labelled examples in memory, from TensorFlow Datasets or from users' files."""

import contextlib
import dataclasses
from typing import Self

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from sklearn.utils.class_weight import compute_class_weight

from training.datasets.tasks import MULTIPLE_CHOICE, Task
from training.datasets.tfds_builders import prepared_builder, read_split
from training.datasets.user_files import UserFileTask


@dataclasses.dataclass(frozen=True)
class LabelledExamples:
    """Texts and their labels, in memory.

    Attributes:
        texts: dict from field to an array `[examples]` of byte strings; for choices, of arrays of
            byte strings.
        labels: array `[examples]`: int32 indices of classes or choices, or -1; or float32 scores,
            or NaN.
        indices: int array `[examples]`, by which the data set identifies its examples.
        class_names: None where labels are not classes.
    """

    texts: dict[str, np.ndarray]
    labels: np.ndarray
    indices: np.ndarray
    class_names: list[str] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, positions: np.ndarray) -> Self:
        """Returns the examples at an array of positions."""
        texts = {field: array[positions] for field, array in self.texts.items()}
        labels, indices = self.labels[positions], self.indices[positions]
        return dataclasses.replace(self, texts=texts, labels=labels, indices=indices)

    def sample(self, count: int, seed: int) -> Self:
        """Returns `count` examples chosen at random, or all if there are fewer."""
        return self.take(np.random.default_rng(seed).permutation(len(self))[:count])

    def labelled(self) -> Self:
        """Returns the examples that have a label."""
        return self.take(np.flatnonzero(self.is_labelled))

    @property
    def is_labelled(self) -> np.ndarray:
        """bool array `[examples]`."""
        is_score = np.issubdtype(self.labels.dtype, np.floating)
        return ~np.isnan(self.labels) if is_score else self.labels >= 0

    def balanced_class_weights(self) -> dict[int, float]:
        """Returns the weight of each class: inversely as frequent, with a mean over examples of 1.

        Raises:
            ValueError: labels are not classes.
        """
        if self.class_names is None:
            raise ValueError("class_weight is for labels that are classes, not scores or choices.")
        classes = np.unique(self.labels)
        weights = compute_class_weight("balanced", classes=classes, y=self.labels)
        return dict(zip(classes.tolist(), weights.tolist()))

    def tensors(self) -> dict[str, tf.Tensor | tf.RaggedTensor]:
        """Returns the texts by field: string `[examples]`, or ragged `[examples, None]`."""
        return {field: _tensor(array) for field, array in self.texts.items()}


def load_examples(
    task: Task | UserFileTask, role: str, data_dir: str | None = None, download: bool = False
) -> LabelledExamples:
    """Loads a split of a task.

    Args:
        task: one of the paper's tasks, or a user's files.
        role: `"train"`, `"validation"` or `"test"`.
        data_dir: folder of the prepared data sets; TensorFlow Datasets' own by default.
        download: whether to download and prepare a missing data set.

    Returns:
        `LabelledExamples`, some of which may have no label.

    Raises:
        FileNotFoundError: the data set or file does not exist.
        ValueError: the data set has no such split, or lacks a feature.
    """
    if isinstance(task, UserFileTask):
        texts, labels = task.read(role)
        return LabelledExamples(texts, labels, np.arange(len(labels)), task.class_names)
    parts = [_read_part(task, name, role, data_dir, download) for name in task.datasets]
    return LabelledExamples(
        {field: np.concatenate([part.texts[field] for part in parts]) for field in task.fields},
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.indices for part in parts]),
        parts[0].class_names,
    )


def _read_part(
    task: Task, name: str, role: str, data_dir: str | None, download: bool
) -> LabelledExamples:
    """The examples of one of a task's data sets."""
    builder, split = _find_split(task, name, role, data_dir, download)
    columns = read_split(builder, split)
    missing = set(task.fields.values()) - columns.keys()
    if missing:
        raise ValueError(f"{name} has no features {sorted(missing)}; it has {sorted(columns)}.")
    texts, labels = task.read(columns, task.fields)
    indices = columns.get("idx", np.arange(len(labels)))  # GLUE has `idx`
    class_names = None
    if task.kind != MULTIPLE_CHOICE:  # whose labels are indices
        class_names = getattr(builder.info.features["label"], "names", None)
    return LabelledExamples(texts, labels, indices, class_names)


def _find_split(
    task: Task, name: str, role: str, data_dir: str | None, download: bool
) -> tuple[tfds.core.DatasetBuilder, str]:
    """A data set that is ready to be read, and the name of its split."""
    try:
        return prepared_builder(name, data_dir, download), task.split(role)
    except FileNotFoundError:
        if task.held_out is not None and role != "train":
            with contextlib.suppress(FileNotFoundError):
                return prepared_builder(task.held_out, data_dir), role
        raise


def _tensor(array: np.ndarray) -> tf.Tensor | tf.RaggedTensor:
    if len(array) and isinstance(array[0], np.ndarray):
        flat = tf.constant(np.concatenate(array), tf.string)
        return tf.RaggedTensor.from_row_lengths(flat, [len(row) for row in array])
    return tf.constant(array)

"""Labelled examples in memory, from TensorFlow Datasets or from users' files."""

import contextlib
import dataclasses
import hashlib
import json
import os
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from sklearn.utils.class_weight import compute_class_weight

from gpt1_keras.files import write_text
from gpt1_keras.labelled_files import LABEL
from training.datasets.data_options import DEFAULT_DATA, DataOptions
from training.datasets.paper_datasets import MULTIPLE_CHOICE, TfdsDataset
from training.datasets.tfds import READERS, prepared_builder, read_split
from training.datasets.user_files import Dataset, UserFiles

_DIGEST_BYTES = 8


@dataclasses.dataclass(frozen=True)
class LabelledExamples:
    """Texts and their labels, in memory.

    Attributes:
        texts: dict from field to an array `[examples]` of byte strings; for choices, of arrays of
            byte strings.
        labels: array `[examples]`: int32 indices of classes or choices, or -1; or float32 scores,
            or NaN.
        indices: int array `[examples]`: GLUE's `idx`, or the index of each row.
        class_names: in the order of their indices; None where labels are not classes.
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

    def balanced_class_weights(self) -> dict[str, float]:
        """Returns a weight by class name, inverse to its frequency; the mean over examples is 1."""
        if self.class_names is None:
            raise ValueError("class_weight is for labels that are classes, not scores or choices.")
        classes = np.unique(self.labels)
        weights = compute_class_weight("balanced", classes=classes, y=self.labels)
        names = [self.class_names[number] for number in classes]
        return dict(zip(names, weights.tolist()))

    def fingerprint(self) -> dict[str, Any]:
        """Returns what tells these examples from others, as JSON holds it.

        It has the number of `examples`, and hashes of their `texts` and `labels`, in order.
        """
        texts = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for field, column in self.texts.items():
            texts.update(b"%d %s\n" % (len(column), field.encode()))
            for value in column:
                listed = value if isinstance(value, np.ndarray) else [value]
                texts.update(b"%d:" % len(listed))
                for text in listed:
                    texts.update(b"%d:%s" % (len(text), text))  # so that no two lists are alike
        labels = json.dumps([self.class_names, self.labels.tolist()]).encode()
        return {
            "examples": len(self),
            "texts": texts.hexdigest(),
            "labels": hashlib.blake2b(labels, digest_size=_DIGEST_BYTES).hexdigest(),
        }

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes a .jsonl file that `training.datasets.user_files` reads as these examples."""
        labels = self.labels.tolist()
        if self.class_names is not None:
            labels = [self.class_names[number] for number in labels]
        lines = [
            json.dumps({**dict(zip(self.texts, values)), LABEL: label}, default=_decoded)
            for label, *values in zip(labels, *self.texts.values())
        ]
        write_text(path, "".join(f"{line}\n" for line in lines))

    def tensors(self) -> dict[str, tf.Tensor | tf.RaggedTensor]:
        """Returns the texts by field: string `[examples]`, or ragged `[examples, None]`."""
        return {field: _tensor(array) for field, array in self.texts.items()}


def load_examples(
    dataset: Dataset, role: str, data: DataOptions = DEFAULT_DATA
) -> LabelledExamples:
    """Loads a split of a data set, whose examples may lack labels.

    Args:
        role: `"train"`, `"validation"` or `"test"`.
    """
    if isinstance(dataset, UserFiles):
        texts, labels = dataset.read(role)
        return LabelledExamples(texts, labels, np.arange(len(labels)), dataset.class_names)
    parts = [_read_part(dataset, name, role, data) for name in dataset.tfds_names]
    return LabelledExamples(
        {field: np.concatenate([part.texts[field] for part in parts]) for field in dataset.fields},
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.indices for part in parts]),
        parts[0].class_names,
    )


def _read_part(dataset: TfdsDataset, name: str, role: str, data: DataOptions) -> LabelledExamples:
    """Reads the examples of one of a data set's `tfds_names`."""
    builder, split = _find_split(dataset, name, role, data)
    columns = read_split(builder, split)
    missing = set(dataset.fields.values()) - columns.keys()
    if missing:
        raise ValueError(f"{name} has no features {sorted(missing)}; it has {sorted(columns)}.")
    texts, labels = READERS[dataset.reader](columns, dataset.fields)
    indices = columns.get("idx", np.arange(len(labels)))  # GLUE has `idx`
    class_names = None
    if dataset.kind != MULTIPLE_CHOICE:  # whose labels are indices
        class_names = getattr(builder.info.features["label"], "names", None)
    return LabelledExamples(texts, labels, indices, class_names)


def _find_split(
    dataset: TfdsDataset, name: str, role: str, data: DataOptions
) -> tuple[tfds.core.DatasetBuilder, str]:
    """Returns a data set that is ready to be read, and the name of its split."""
    try:
        return prepared_builder(name, data), dataset.split(role)
    except FileNotFoundError:
        if dataset.held_out is not None and role != "train":
            with contextlib.suppress(FileNotFoundError):
                on_disk = dataclasses.replace(data, download=False)
                return prepared_builder(dataset.held_out, on_disk), role
        raise


def _decoded(text: bytes | np.ndarray) -> str | list[bytes]:
    """Returns a text as JSON has it, or a list of texts."""
    return text.decode() if isinstance(text, bytes) else text.tolist()


def _tensor(array: np.ndarray) -> tf.Tensor | tf.RaggedTensor:
    if len(array) and isinstance(array[0], np.ndarray):
        flat = tf.constant(np.concatenate(array), tf.string)
        return tf.RaggedTensor.from_row_lengths(flat, [len(row) for row in array])
    return tf.constant(array)

"""Labelled examples in memory, from TensorFlow Datasets or from users' files."""

import contextlib
import dataclasses

import numpy as np
import tensorflow_datasets as tfds

from gpt1_keras.examples import Examples
from training.datasets.data_options import DEFAULT_DATA, DataOptions
from training.datasets.paper_datasets import MULTIPLE_CHOICE, TfdsDataset
from training.datasets.tfds import READERS, prepared_builder, read_split
from training.datasets.user_files import Dataset, UserFiles


def load_examples(dataset: Dataset, role: str, data: DataOptions = DEFAULT_DATA) -> Examples:
    """Loads a split of a data set: byte strings, encoded labels, some of which may be missing.

    Args:
        role: `"train"`, `"validation"` or `"test"`.
    """
    if isinstance(dataset, UserFiles):
        return dataset.read(role)
    parts = [_read_part(dataset, name, role, data) for name in dataset.tfds_names]
    return Examples(
        {field: np.concatenate([part.texts[field] for part in parts]) for field in dataset.fields},
        np.concatenate([part.labels for part in parts]),
        indices=np.concatenate([part.indices for part in parts]),
        class_names=parts[0].class_names,
    )


def _read_part(dataset: TfdsDataset, name: str, role: str, data: DataOptions) -> Examples:
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
    return Examples(texts, labels, indices=indices, class_names=class_names)


def _find_split(
    dataset: TfdsDataset, name: str, role: str, data: DataOptions
) -> tuple[tfds.core.DatasetBuilder, str]:
    try:
        return prepared_builder(name, data), dataset.split(role)
    except FileNotFoundError:
        if dataset.held_out is not None and role != "train":
            with contextlib.suppress(FileNotFoundError):
                on_disk = dataclasses.replace(data, download=False)
                return prepared_builder(dataset.held_out, on_disk), role
        raise

"""Labelled examples from TensorFlow Datasets, and length-bucketed batches of them."""

import dataclasses

import numpy as np
import tensorflow as tf

from training.datasets.tfds_builders import prepared_builder, read_split
from training.datasets.user_files import UserFileTask

_POOL = 64  # batches whose examples are sorted by length together


@dataclasses.dataclass(frozen=True)
class LabelledExamples:
    """Texts in memory, with labels.

    Attributes:
        texts: dict from field to an array `[examples]` of byte strings; for answers to choose
            from, of arrays of byte strings.
        labels: array `[examples]`: int32, numbers of classes or answers, or -1; or float32, scores
            or not a number.
        numbers: int array `[examples]`, by which the data set knows its examples.
        class_names: list of str, or None where labels are no classes.
    """

    texts: dict[str, np.ndarray]
    labels: np.ndarray
    numbers: np.ndarray
    class_names: list[str] | None = None

    def __len__(self):
        return len(self.labels)

    def take(self, indices):
        """The examples at an array of indices."""
        texts = {field: array[indices] for field, array in self.texts.items()}
        labels, numbers = self.labels[indices], self.numbers[indices]
        return dataclasses.replace(self, texts=texts, labels=labels, numbers=numbers)

    def sample(self, count, seed):
        """So many examples drawn at random, or all where there are no more."""
        return self.take(np.random.default_rng(seed).permutation(len(self))[:count])

    def labelled(self):
        """The examples that have a label."""
        return self.take(np.flatnonzero(self.is_labelled))

    @property
    def is_labelled(self):
        """bool array `[examples]`."""
        is_score = np.issubdtype(self.labels.dtype, np.floating)
        return ~np.isnan(self.labels) if is_score else self.labels >= 0

    def tensors(self):
        """The texts as tensors by field: string `[examples]`, or ragged `[examples, None]`."""
        return {field: _tensor(array) for field, array in self.texts.items()}


def load_examples(task, role, data_dir=None, download=False):
    """Loads a split of a task.

    Args:
        task: `training.datasets.tasks.Task` or `training.datasets.user_files.UserFileTask`.
        role: `"train"`, `"validation"` or `"test"`.
        data_dir: path of the prepared data sets; TensorFlow Datasets' own by default.
        download: bool, whether to download and prepare what is missing.

    Returns:
        `LabelledExamples`, some of which may have no label.

    Raises:
        FileNotFoundError: the data set is not on disk.
        ValueError: the data set has no such split, or lacks a feature.
    """
    if isinstance(task, UserFileTask):
        texts, labels = task.read(role)
        return LabelledExamples(texts, labels, np.arange(len(labels)), task.class_names)
    parts = [
        _read_split(task, name, task.split(role), data_dir, download) for name in task.datasets
    ]
    texts = {field: np.concatenate([part.texts[field] for part in parts]) for field in task.fields}
    labels, numbers = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("labels", "numbers")
    )
    return LabelledExamples(texts, labels, numbers, parts[0].class_names)


def _read_split(task, name, split, data_dir, download):
    builder = prepared_builder(name, data_dir, download)
    columns = read_split(builder, split)
    missing = set(task.fields.values()) - columns.keys()
    if missing:
        raise ValueError(f"{name} has no features {sorted(missing)}; it has {sorted(columns)}.")
    texts, labels = task.read(columns, task.fields)
    numbers = columns.get("idx", np.arange(len(labels)))  # which GLUE has
    # Stories have a plain number for a label, and passages have none.
    feature = builder.info.features["label"] if "label" in columns else None
    return LabelledExamples(texts, labels, numbers, getattr(feature, "names", None))


def _tensor(array):
    if len(array) and isinstance(array[0], np.ndarray):
        flat = tf.constant(np.concatenate(array), tf.string)
        return tf.RaggedTensor.from_row_lengths(flat, [len(row) for row in array])
    return tf.constant(array)


def count_tokens(examples, preprocessor):
    """The tokens of each example as the model reads it, int32 `[examples]`."""

    def count(batch):
        return preprocessor.count_tokens(preprocessor(batch))

    texts = tf.data.Dataset.from_tensor_slices(examples.tensors()).batch(1024)
    return np.concatenate(list(texts.map(count).as_numpy_iterator()))


def batch_order(lengths, batch_size, seed, epoch):
    """Puts examples of like length into batches, at random.

    Examples are shuffled; of every 64 batches, the examples are sorted by length, so that short
    texts share a batch; and the batches are shuffled again.

    Args:
        lengths: int array `[examples]`.
        batch_size: int.
        seed, epoch: ints; the order is a function of them.

    Returns:
        list of int arrays, the indices of each batch's examples.
    """
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), _POOL * batch_size):
        pool = order[start : start + _POOL * batch_size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    random.shuffle(batches)
    return batches


def make_batches(examples, order):
    """A dataset of `(texts by field, labels)`, one element for each batch of indices."""
    indices = tf.RaggedTensor.from_row_lengths(
        np.concatenate(order), [len(batch) for batch in order]
    )
    texts = examples.tensors()
    labels = tf.constant(examples.labels)

    def gather(batch):
        return {field: tf.gather(text, batch) for field, text in texts.items()}, tf.gather(
            labels, batch
        )

    return tf.data.Dataset.from_tensor_slices(indices).map(gather)

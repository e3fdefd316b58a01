"""Labelled examples from TensorFlow Datasets, and length-bucketed batches of them."""

import dataclasses

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from training.tfds_builders import prepared_builder

_POOL = 64  # batches whose examples are sorted by length together


@dataclasses.dataclass(frozen=True)
class Examples:
    """Labelled texts in memory.

    Attributes:
        texts: dict from field to an array of byte strings `[examples]`.
        labels: int32 array `[examples]`.
    """

    texts: dict[str, np.ndarray]
    labels: np.ndarray

    def __len__(self):
        return len(self.labels)

    def take(self, indices):
        """The examples at an array of indices."""
        texts = {field: array[indices] for field, array in self.texts.items()}
        return Examples(texts, self.labels[indices])


def load_examples(task, split, data_dir=None, download=False, limit=None, seed=0):
    """Loads a split of a task.

    Args:
        task: `training.tasks.Task`.
        split: str, such as `"train"`.
        data_dir: path of the prepared data sets; TensorFlow Datasets' own by default.
        download: bool, whether to download and prepare what is missing.
        limit: int, how many examples to draw at random; all by default.
        seed: int, of that draw.

    Returns:
        `(examples, class_names)`. Examples without a label (-1) are left out.

    Raises:
        FileNotFoundError: the data set is not on disk.
        ValueError: the data set has no such split.
    """
    builder = prepared_builder(task.dataset, data_dir, download)
    if split not in builder.info.splits:
        raise ValueError(
            f"{task.dataset} in {builder.data_dir} has no split {split!r}; it has "
            f"{sorted(builder.info.splits)}."
        )
    columns = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
    texts = {field: columns[feature] for field, feature in task.fields.items()}
    examples = Examples(texts, columns["label"].astype(np.int32))
    examples = examples.take(np.flatnonzero(examples.labels >= 0))
    if limit is not None and limit < len(examples):
        examples = examples.take(np.random.default_rng(seed).permutation(len(examples))[:limit])
    return examples, builder.info.features["label"].names


def count_tokens(examples, preprocessor):
    """The framed length of each example in tokens, int64 `[examples]`."""

    def count(batch):
        ids, _ = preprocessor.transform([batch[field] for field in preprocessor.fields])
        return ids.row_lengths()

    texts = tf.data.Dataset.from_tensor_slices(examples.texts).batch(1024)
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
    texts = {field: tf.constant(array) for field, array in examples.texts.items()}
    labels = tf.constant(examples.labels)

    def gather(batch):
        return {field: tf.gather(text, batch) for field, text in texts.items()}, tf.gather(
            labels, batch
        )

    return tf.data.Dataset.from_tensor_slices(indices).map(gather)

"""Batches of examples of similar length, in an order that is a function of seed and epoch."""

from typing import Any

import numpy as np
import tensorflow as tf

from gpt1_keras.cli import progress
from gpt1_keras.tasks.examples import without_autotuning
from training.datasets.labelled_examples import LabelledExamples

_POOL = 64  # batches whose examples are sorted by length together
_COUNTED_AT_ONCE = 1024  # examples


def count_tokens(examples: LabelledExamples, preprocessor: Any) -> np.ndarray:
    """Counts the tokens of each example as the model reads it, int32 `[examples]`."""

    def count(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        return preprocessor.count_tokens(preprocessor(batch, pad_to="longest"))

    batches = tf.data.Dataset.from_tensor_slices(examples.tensors()).batch(_COUNTED_AT_ONCE)
    counts = without_autotuning(batches.map(count)).as_numpy_iterator()
    return np.concatenate(list(progress(counts, "Counting tokens", len(batches))))


def batch_order(lengths: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Puts examples of similar length into batches, at random.

    Shuffles the examples, sorts those of every 64 batches by length, so that short texts share a
    batch, and shuffles the batches.

    Args:
        lengths: int array `[examples]`.
        seed: with `epoch`, determines the order.
        epoch: number of passes before this one.

    Returns:
        For each batch an int array, the indices of its examples.
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


def make_batches(examples: LabelledExamples, order: list[np.ndarray]) -> tf.data.Dataset:
    """Returns a dataset of `(texts by field, labels)`, one element for each batch of `order`.

    Labels are names of classes, scores or indices of choices. To a model of the classes "1" and
    "2", the index 1 would be the first.
    """
    indices = tf.RaggedTensor.from_row_lengths(
        np.concatenate(order), [len(batch) for batch in order]
    )
    texts = examples.tensors()
    labels = tf.constant(examples.labels)
    if examples.class_names is not None:
        # The index -1, of an example without a label, is that of the empty string.
        labels = tf.constant(np.array([*examples.class_names, ""])[examples.labels])

    def gather(batch: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        batch_texts = {field: tf.gather(text, batch) for field, text in texts.items()}
        return batch_texts, tf.gather(labels, batch)

    return tf.data.Dataset.from_tensor_slices(indices).map(gather)

"""Batches of examples of similar length, in an order that is a function of seed and epoch."""

from typing import Any

import numpy as np
import tensorflow as tf

from gpt1_keras.cli import progress
from gpt1_keras.examples import Examples
from gpt1_keras.tasks.batches import string_tensors, without_autotuning

_POOL = 64  # batches whose examples are sorted by length together
_COUNTED_AT_ONCE = 1024  # examples


def count_tokens(examples: Examples, preprocessor: Any) -> tuple[np.ndarray, np.ndarray]:
    """Counts the tokens of each example as the model reads it.

    Returns:
        The numbers, int32 `[examples]`; and whether the example is longer than the model reads, and
        was cut, bool `[examples]`.
    """

    def count(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        texts = preprocessor.as_tensors(batch)
        framed, is_cut = preprocessor.transform(list(texts.values()))
        return preprocessor.count_tokens(preprocessor.pad(framed, "longest")), is_cut

    batches = tf.data.Dataset.from_tensor_slices(string_tensors(examples.texts)).batch(
        _COUNTED_AT_ONCE
    )
    counts = without_autotuning(batches.map(count)).as_numpy_iterator()
    numbers, are_cut = zip(*progress(counts, "Counting tokens", len(batches)))
    return np.concatenate(numbers), np.concatenate(are_cut)


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

"""What `fit`, `evaluate` and `predict` are given."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from gpt1_keras.lazy import has_tensorflow
from gpt1_keras.lazy import tensorflow as tf


def pack(x: Any, y: Any, sample_weight: Any) -> tuple[Any, ...]:
    """The arguments of `fit` that are given; always a tuple, as x may be one itself."""
    if y is None:
        return (x,)
    return (x, y) if sample_weight is None else (x, y, sample_weight)


def holds_ids(x: Any) -> bool:
    """Whether the data is of a kind that is not preprocessed."""
    if keras.backend.backend() == "tensorflow" and isinstance(x, tf.distribute.DistributedDataset):
        return True
    return isinstance(x, keras.utils.PyDataset)


def holds_batches(x: Any) -> bool:
    """Whether the data is batched already: a dataset of TensorFlow, Keras or grain."""
    if holds_ids(x) or type(x).__module__.partition(".")[0] == "grain":
        return True
    return isinstance(x, tf.data.Dataset)


def is_generator(x: Any) -> bool:
    """Whether the data is a Python generator of batches, or another iterator of them."""
    return isinstance(x, Iterator)


def from_generator(batches: Iterator[Any], as_tensors: Callable[[Any], Any]) -> tf.data.Dataset:
    """Turns a generator of batches into a dataset of as many, which is not known.

    Args:
        batches: yields `x`, or tuples of `x`, labels and weights, of which the last ones may be
            missing.
        as_tensors: turns `x` as users give it into what TensorFlow has tensors for.

    Raises:
        ValueError: there are no batches.
    """

    def tensors_of(batch: Any) -> tuple[Any, ...]:
        x, *others = batch if isinstance(batch, tuple) else (batch,)
        return _as_tensors((as_tensors(x), *others))

    try:
        first = tensors_of(next(batches))
    except StopIteration:
        raise ValueError("Expected a generator of batches. Received: one without any.") from None
    return tf.data.Dataset.from_generator(
        lambda: itertools.chain([first], map(tensors_of, batches)),
        output_signature=keras.tree.map_structure(_any_size, first),
    )


def _as_tensors(x: Any) -> Any:
    """Tuples and dicts of tensors, where a list is one tensor."""
    if isinstance(x, tuple):
        return tuple(map(_as_tensors, x))
    if isinstance(x, dict):
        return {name: _as_tensors(value) for name, value in x.items()}
    return x if isinstance(x, tf.RaggedTensor) else tf.convert_to_tensor(x)


def _any_size(tensor: Any) -> Any:
    """The spec of tensors of the same rank and dtype."""
    shape = [None] * tensor.shape.rank
    if isinstance(tensor, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, tensor.dtype)
    return tf.TensorSpec(shape, tensor.dtype)


def without_autotuning(x: Any) -> Any:
    """Turns off what tunes a `tf.data.Dataset` while it is read, unless its options say otherwise.

    TensorFlow 2.21 tunes in a thread that sleeps for up to a minute at a time, and the end of an
    epoch often waits until it wakes.
    """
    if not has_tensorflow() or not isinstance(x, tf.data.Dataset):
        return x
    if x.options().autotune.enabled is not None:
        return x
    options = tf.data.Options()
    options.autotune.enabled = False
    return x.with_options(options)


def cardinality(dataset: Any) -> int:
    """The number of batches; negative if it is unknown or infinite."""
    try:
        return len(dataset)
    except TypeError:
        return -1


def check_sequences(padding_mask: Any) -> None:
    """Refuses sequences without any token, which no answer could be read from.

    Args:
        padding_mask: `[..., length]`. A symbol of JAX or of XLA cannot be checked.

    Raises:
        ValueError, or in a graph tf.errors.InvalidArgumentError: a sequence's mask is all 0.
    """
    message = "A sequence needs at least one token. Received a padding_mask that is all 0 in rows"
    try:
        mask = np.asarray(padding_mask)
    except (TypeError, ValueError, RuntimeError):  # what each backend says of a symbol
        if type(padding_mask).__module__.startswith("tensorflow"):
            has_tokens = tf.reduce_any(padding_mask != 0, axis=-1)
            tf.debugging.Assert(tf.reduce_all(has_tokens), [message, tf.where(~has_tokens)])
        return
    has_tokens = mask.any(axis=-1)
    if not has_tokens.all():
        raise ValueError(f"{message} {np.argwhere(~has_tokens).tolist()}.")

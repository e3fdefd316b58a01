"""What `fit`, `evaluate` and `predict` do with data: texts in, batches out."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np

from gpt1_keras.lazy import has_tensorflow
from gpt1_keras.lazy import tensorflow as tf

_BATCH_SIZE = 32  # Keras's default
# What a check says in a graph; and an error in a generator, or while a graph is made.
_IN_WORDS = re.compile(
    r"assertion failed: \[(.*Received.*?:)\] \[(.*?)\]$|ValueError: (.*Received.*)$", re.MULTILINE
)

_VISIBLE = re.compile(b"[!-~]")  # in ASCII: what has a token in any normalization
# The first letters of the categories of characters that a normalization may leave out: control and
# other, separators, marks.
_LEFT_OUT = "CZM"

# Turns users' texts and labels into a form that `tf.data` can slice into examples.
_ForSlicing = Callable[[Any, Any], tuple[Any, Any]]


@dataclasses.dataclass(frozen=True)
class Batches:
    """Batches of examples, which KerasHub preprocesses one by one.

    `x` is a dataset of batches. Where TensorFlow is not installed, it may also be arrays or
    strings, which KerasHub batches, with the other attributes. With a dataset, KerasHub refuses
    those.
    """

    x: Any
    y: Any = None
    sample_weight: Any = None
    batch_size: int | None = None

    @property
    def are_of_ids(self) -> bool:
        """Whether the batches hold ids, which are not preprocessed."""
        return _holds_ids(self.x)

    @property
    def count(self) -> int:
        """The number of batches; negative if it is unknown or infinite."""
        try:
            return len(self.x)
        except TypeError:
            return -1


def as_batches(
    for_slicing: _ForSlicing, x: Any, y: Any, sample_weight: Any, batch_size: int | None
) -> Batches:
    """Returns the data of `evaluate` or `predict` as batches, in the given order.

    `for_slicing` turns a user's `x` and `y` into a form that can be sliced into examples. `x` may
    also be a generator of batches.

    Raises:
        ValueError: there are no examples, `for_slicing` refuses them, or a dataset is not batched.
    """
    if isinstance(x, Iterator):
        x = _from_generator(x, for_slicing)
    elif not has_tensorflow():
        # KerasHub then uses Grain, whose batches must all have one length.
        x, y = for_slicing(x, y)
    elif not holds_batches(x):
        return _batch(_examples(for_slicing, x, y, sample_weight), batch_size)
    return Batches(without_autotuning(x), y, sample_weight, batch_size)


def training_batches(
    for_slicing: _ForSlicing,
    x: Any,
    y: Any,
    sample_weight: Any,
    batch_size: int | None,
    *,
    validation_data: Any,
    validation_steps: int | None,
    validation_split: float | None,
    shuffle: bool,
) -> tuple[Batches, Any]:
    """Returns the data of `fit` as batches, and its validation data as a dataset of batches.

    The arguments are those of `as_batches` and `fit`. Validation data from a generator are read at
    once, because each epoch needs all of them, unless there are `validation_steps`; then the
    generator goes on from epoch to epoch, as Keras's do.

    Raises:
        ValueError: `validation_split` with anything but strings or arrays, or without examples on
            both sides; or as for `as_batches`.
    """
    if isinstance(validation_data, Iterator):
        if not validation_steps:
            validation_data = list(validation_data)
        validation_data = _from_generator(validation_data, for_slicing)
    if validation_data is not None:
        texts, labels, weights = keras.utils.unpack_x_y_sample_weight(validation_data)
        validation_data = as_batches(for_slicing, texts, labels, weights, batch_size).x
    if isinstance(x, Iterator):
        x = _from_generator(x, for_slicing)
    if holds_batches(x):
        if validation_split:
            raise ValueError(
                "`validation_split` needs strings or arrays. Received: "
                f"validation_split={validation_split} with a {type(x).__name__}."
            )
        return Batches(without_autotuning(x), y, sample_weight), validation_data
    examples = _examples(for_slicing, x, y, sample_weight)
    count = len(examples)
    if validation_split and validation_data is None:
        count = math.floor(count * (1 - validation_split))
        if not 0 < count < len(examples):
            raise ValueError(
                f"`validation_split` must leave some of the {len(examples)} examples for training "
                f"and some for validation. Received: validation_split={validation_split}."
            )
        validation_data = _batch(examples.skip(count), batch_size).x
        examples = examples.take(count)
    if shuffle:
        examples = examples.shuffle(count, reshuffle_each_iteration=True)
    return _batch(examples, batch_size), validation_data


def _examples(for_slicing: _ForSlicing, x: Any, y: Any, sample_weight: Any) -> tf.data.Dataset:
    """Returns strings or arrays as a dataset of examples, each a tuple, as `x` may be one."""
    x, y = for_slicing(x, y)
    labels = (y,) if sample_weight is None else (y, sample_weight)
    arrays = (x, *(() if y is None else labels))
    arrays = _as_tensors(arrays)
    shapes = [array.shape for array in tf.nest.flatten(arrays)]
    if any(not shape.rank or not shape[0] or shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(
            "Expected one example or more, and as many labels and weights if there are any. "
            f"Received shapes: {[tuple(shape) for shape in shapes]}."
        )
    return tf.data.Dataset.from_tensor_slices(arrays)


def _batch(examples: tf.data.Dataset, batch_size: int | None) -> Batches:
    return Batches(without_autotuning(examples.batch(batch_size or _BATCH_SIZE)))


def _holds_ids(x: Any) -> bool:
    """Returns whether the data holds ids, which are not preprocessed."""
    if keras.backend.backend() == "tensorflow" and isinstance(x, tf.distribute.DistributedDataset):
        return True
    return isinstance(x, keras.utils.PyDataset)


def holds_batches(x: Any) -> bool:
    """Returns whether the data is already batched: a dataset of TensorFlow, Keras or Grain.

    Raises ValueError for a dataset of single examples.
    """
    if _holds_ids(x) or type(x).__module__.partition(".")[0] == "grain":
        return True
    if not isinstance(x, tf.data.Dataset):
        return False
    if any(spec.shape.rank == 0 for spec in tf.nest.flatten(x.element_spec)):
        raise ValueError(
            "Expected a dataset of batches. Received one of single examples: call "
            f"`batch({_BATCH_SIZE})` on it."
        )
    return True


def _from_generator(batches: Iterable[Any], for_slicing: _ForSlicing) -> tf.data.Dataset:
    """Turns batches into a dataset of unknown length; each is `x`, with labels and weights if any.

    Each pass over it iterates the batches anew, if they are a list; of a generator, it goes on
    where the pass before has ended. Raises ValueError if there are no batches.
    """

    def tensors_of(batch: Any) -> tuple[Any, ...]:
        if isinstance(batch, list) and not all(isinstance(text, (str, bytes)) for text in batch):
            raise ValueError(
                "A batch is texts, or a tuple of texts and labels. Received: a list of "
                f"{[type(each).__name__ for each in batch[:3]]}."
            )
        x, *others = batch if isinstance(batch, tuple) else (batch,)
        x, *labels = for_slicing(x, others[0] if others else None)
        return _as_tensors((x, *labels, *others[1:])[: 1 + len(others)])

    first = next(iter(batches), None)
    if first is None:
        raise ValueError("Expected a generator of batches. Received: one without any.")
    if isinstance(batches, Iterator):
        batches = itertools.chain([first], batches)
    return tf.data.Dataset.from_generator(
        lambda: map(tensors_of, batches),
        output_signature=keras.tree.map_structure(_any_size, tensors_of(first)),
    )


def _as_tensors(x: Any) -> Any:
    """Returns tuples and dicts of tensors; a list becomes one tensor, and None stays."""
    if isinstance(x, tuple):
        return tuple(map(_as_tensors, x))
    if isinstance(x, dict):
        return {name: _as_tensors(value) for name, value in x.items()}
    return x if x is None or isinstance(x, tf.RaggedTensor) else tf.convert_to_tensor(x)


def _any_size(tensor: Any) -> Any:
    """Returns the spec of tensors of any shape with the same rank and dtype."""
    shape = [None] * tensor.shape.rank
    if isinstance(tensor, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape, tensor.dtype)
    return tf.TensorSpec(shape, tensor.dtype)


def blank_examples(preprocessor: Any, x: Any) -> list[bool]:
    """Returns whether a text of each example has no token.

    A context and a question are one text, and each of their choices is another. `preprocessor` is
    one of ours, and `x` texts that it takes, one example or a batch.
    """
    has_fields = hasattr(preprocessor, "as_batch")
    texts = list(preprocessor.as_batch(x).values()) if has_fields else [preprocessor.for_slicing(x)]
    *first, last = map(_as_lists, texts)
    invisible = {text for text in keras.tree.flatten([first, last]) if _is_invisible(text)}
    if not invisible:
        return [False] * len(last)
    # Which of them have no token, only the normalization knows.
    ids = preprocessor.tokenizer.tokenize(list(invisible))
    blank = {text for text, each in zip(invisible, ids) if not len(each)}
    if isinstance(last[0], list):
        return [
            all(text in blank for text in row) or not blank.isdisjoint(choices)
            for *row, choices in zip(*first, last)
        ]
    return [not blank.isdisjoint(row) for row in zip(*first, last)]


def warn_of_blank_examples(preprocessor: Any, x: Any) -> None:
    """Warns of examples with a text without a token, if the data are texts, one or a batch."""
    if not hasattr(preprocessor, "for_slicing") or isinstance(x, Iterator) or holds_batches(x):
        return
    are_blank = blank_examples(preprocessor, x)
    if any(are_blank):
        warnings.warn(
            f"Nothing is read of a text without a token. Received one in {sum(are_blank):,} of "
            f"{len(are_blank):,} examples, first at index {are_blank.index(True)}.",
            stacklevel=3,
        )


def _as_lists(texts: Any) -> list[Any]:
    """Returns a batch of texts as a list, of lists where they are choices."""
    if hasattr(texts, "to_list"):
        return texts.to_list()
    return np.asarray(texts).tolist() if hasattr(texts, "shape") else list(texts)


def _is_invisible(text: str | bytes) -> bool:
    """Returns whether a normalization may leave out all characters of a text."""
    if _VISIBLE.search(text if isinstance(text, bytes) else text.encode(errors="replace")):
        return False
    characters = text.decode(errors="replace") if isinstance(text, bytes) else text
    return all(
        each == "\ufffd" or unicodedata.category(each)[0] in _LEFT_OUT for each in characters
    )


def without_autotuning(x: Any) -> Any:
    """Turns off autotuning of a `tf.data.Dataset`, unless its options set it.

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


@contextlib.contextmanager
def errors_in_words() -> Iterator[None]:
    """Turns errors about data that a graph or a generator raises into ValueErrors of one line.

    TensorFlow's errors tell of the graph, and hold the message in between.
    """
    try:
        yield
    except Exception as error:
        found = _IN_WORDS.search(str(error))
        if found is None or type(error).__name__ not in ("InvalidArgumentError", "ValueError"):
            raise
        message = found[3] or f"{found[1]} {found[2]}."
        raise ValueError(message.replace("\\'", "'")) from None  # TensorFlow escapes quotes


def check_sequences(padding_mask: Any) -> None:
    """Refuses sequences without any token: there would be no hidden state to predict from.

    Symbolic masks, `[..., length]`, of JAX or XLA are not checked.

    Raises:
        ValueError, or in a graph tf.errors.InvalidArgumentError: a sequence's mask is all 0.
    """
    message = "A sequence needs at least one token. Received a padding_mask that is all 0 in rows:"
    try:
        mask = np.asarray(padding_mask)
    except (TypeError, ValueError, RuntimeError):  # the backends' errors for a symbolic mask
        if type(padding_mask).__module__.startswith("tensorflow"):
            has_tokens = tf.reduce_any(padding_mask != 0, axis=-1)
            tf.debugging.Assert(tf.reduce_all(has_tokens), [message, tf.where(~has_tokens)])
        return
    has_tokens = mask.any(axis=-1)
    if not has_tokens.all():
        raise ValueError(f"{message} {np.argwhere(~has_tokens).tolist()}.")

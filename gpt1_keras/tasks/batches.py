"""Turns users' examples, datasets and generators into batches that Keras takes."""

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

from gpt1_keras.examples import Examples, as_column, as_str
from gpt1_keras.labelled_files.rows import blank_field
from gpt1_keras.lazy import has_tensorflow
from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.list_backend import check_slices

_BATCH_SIZE = 32  # Keras's default
# What a check says in a graph; an error in a generator, or while a graph is made; and, between
# escape codes, an error of a preprocessor there.
_IN_WORDS = re.compile(
    r"assertion failed: \[(.*Received.*?:)\] \[(.*?)\]$|ValueError: (.*Received.*)$"
    r"|calling \w+Preprocessor\.call\(\)\.\s+\x1b\[1m(.*Received.*)\x1b\[0m$",
    re.MULTILINE,
)

_VISIBLE = re.compile(b"[!-~]")  # in ASCII: what has a token in any normalization
# The first letters of the categories of characters that a normalization may leave out: control and
# other, separators, marks.
_LEFT_OUT = "CZM"


@dataclasses.dataclass(frozen=True)
class Batches:
    """Batches of examples.

    Attributes:
        x: a dataset of what Keras takes, if they `are_ready`. Otherwise KerasHub preprocesses the
            batches: of a Grain dataset; or, where TensorFlow is not installed, of arrays or
            strings, with the other attributes.
        examples: what they were made of, unless they were given as batches.
    """

    x: Any
    y: Any = None
    sample_weight: Any = None
    batch_size: int | None = None
    are_ready: bool = True
    examples: Examples | None = None

    @property
    def count(self) -> int:
        """The number of batches; negative if it is unknown or infinite."""
        try:
            return len(self.x)
        except TypeError:
            return -1

    def repeated(self) -> Batches:
        """Returns the same, without end; ids in other data than `tf.data` stay as they are."""
        if not hasattr(self.x, "repeat"):
            return self
        return dataclasses.replace(self, x=self.x.repeat())


def as_batches(task: Any, x: Any, y: Any, sample_weight: Any, batch_size: int | None) -> Batches:
    """Returns the data of `evaluate` or `predict` as batches, in the given order.

    Args:
        task: reads examples (`read_examples`) and turns batches of them, or batches of a user's
            dataset, into what Keras takes (`frame_examples`, `preprocess_samples`).
        x: what `Task.fit` takes, or `Examples`.

    Raises:
        ValueError: there are no examples, the task refuses them, or a dataset is not batched.
    """
    if isinstance(x, Iterator):
        return Batches(_from_generator(task, x))
    if _holds_ids(x):
        return Batches(x, y, sample_weight, batch_size)
    if has_tensorflow() and holds_batches(x):
        if isinstance(x, tf.data.Dataset) and y is sample_weight is batch_size is None:
            return Batches(_mapped(without_autotuning(x), task.preprocess_samples))
        # A Grain dataset; or KerasHub says in words what it does not take beside a dataset.
        return Batches(x, y, sample_weight, batch_size, are_ready=False)
    examples = task.read_examples(x, y, sample_weight)
    if has_tensorflow():
        slices = _slices(examples)
        if examples.batches is None and len(slices) <= (batch_size or _BATCH_SIZE):
            return _one_batch(task, examples)
        return _batch(task, examples, slices, batch_size)
    # KerasHub then uses Grain, whose batches must all have one length.
    if examples.batches is not None:
        raise ValueError("Reading examples in your own batches needs TensorFlow.")
    if isinstance(examples.texts, dict):
        check_slices(examples.texts)
    given = (examples.texts, examples.labels, examples.weights, batch_size)
    return Batches(*given, are_ready=False, examples=examples)


def training_batches(
    task: Any,
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
        validation_data = _from_generator(task, validation_data, validation_steps or None)
    elif validation_data is not None:
        texts, labels, weights = keras.utils.unpack_x_y_sample_weight(validation_data)
        validation_data = as_batches(task, texts, labels, weights, batch_size).x
    is_batched = isinstance(x, Examples) and x.batches is not None
    if is_batched or isinstance(x, Iterator) or holds_batches(x):
        if validation_split:
            raise ValueError(
                "`validation_split` needs strings or arrays. Received: "
                f"validation_split={validation_split} with a {type(x).__name__} of batches."
            )
        return as_batches(task, x, y, sample_weight, batch_size), validation_data
    read = task.read_examples(x, y, sample_weight)
    examples = _slices(read)
    count = len(examples)
    if validation_split and validation_data is None:
        count = math.floor(count * (1 - validation_split))
        if not 0 < count < len(examples):
            raise ValueError(
                f"`validation_split` must leave some of the {len(examples)} examples for training "
                f"and some for validation. Received: validation_split={validation_split}."
            )
        validation_data = _batch(task, read, examples.skip(count), batch_size).x
        examples = examples.take(count)
    if shuffle:
        examples = examples.shuffle(count, reshuffle_each_iteration=True)
    return _batch(task, read, examples, batch_size), validation_data


def string_tensors(texts: dict[str, Any]) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """Returns columns of texts as strings `[examples]`, and of choices as ragged ones."""
    return {field: _string_tensor(column) for field, column in texts.items()}


def _string_tensor(column: Any) -> tf.Tensor | tf.RaggedTensor:
    if tf.is_tensor(column):
        return column
    column = as_column(column)
    if len(column) and not isinstance(column[0], (str, bytes)):
        flat = tf.constant(list(itertools.chain.from_iterable(column)), tf.string)
        return tf.RaggedTensor.from_row_lengths(flat, [len(row) for row in column])
    return tf.constant(column, tf.string)


def in_order(outputs: Any, x: Any) -> Any:
    """Returns outputs, `[examples, ...]`, of examples that were read in batches of positions."""
    if not isinstance(x, Examples) or x.batches is None:
        return outputs
    positions = np.concatenate(x.batches)
    if not np.array_equal(np.sort(positions), np.arange(len(x))):
        raise ValueError(
            f"Expected batches that have each of {len(x)} examples once. Received: "
            f"{len(positions)} positions, {len(np.unique(positions))} of them different."
        )
    ordered = np.empty_like(outputs)
    ordered[positions] = outputs
    return ordered


def _tensors(examples: Examples) -> tuple[Any, ...]:
    """Returns the texts of examples that a task has read, with labels and weights if any."""
    given = (examples.texts, examples.labels, examples.weights)
    return _as_tensors(tuple(each for each in given if each is not None))


def _slices(examples: Examples) -> tf.data.Dataset:
    """Returns a dataset of single examples, each a tuple, as texts may be one.

    Of examples with `batches`, it has the positions of each.
    """
    tensors = _tensors(examples)
    shapes = [array.shape for array in tf.nest.flatten(tensors)]
    if any(not shape.rank or not shape[0] or shape[0] != shapes[0][0] for shape in shapes):
        raise ValueError(
            "Expected one example or more, and as many labels and weights if there are any. "
            f"Received shapes: {[tuple(shape) for shape in shapes]}."
        )
    if examples.batches is None:
        return tf.data.Dataset.from_tensor_slices(tensors)
    lengths = [len(batch) for batch in examples.batches]
    positions = tf.RaggedTensor.from_row_lengths(np.concatenate(examples.batches), lengths)
    return tf.data.Dataset.from_tensor_slices(positions)


def _batch(task: Any, read: Examples, slices: tf.data.Dataset, batch_size: int | None) -> Batches:
    if read.batches is None:
        batches = without_autotuning(slices.batch(batch_size or _BATCH_SIZE))
        return Batches(_mapped(batches, task.frame_examples), examples=read)
    tensors = _tensors(read)

    def frame(positions: tf.Tensor) -> Any:
        batch = tf.nest.map_structure(lambda tensor: tf.gather(tensor, positions), tensors)
        return task.frame_examples(*batch)

    return Batches(_mapped(without_autotuning(slices), frame), examples=read)


def _one_batch(task: Any, read: Examples) -> Batches:
    """Frames the examples at once, where `map` would first trace and optimize a graph for them."""
    with tf.device("CPU:0"):
        framed = task.frame_examples(*_tensors(read))
    batches = tf.data.Dataset.from_tensor_slices(framed).batch(len(read))
    return Batches(without_autotuning(batches), examples=read)


def _mapped(batches: tf.data.Dataset, preprocess: Callable) -> tf.data.Dataset:
    """Preprocesses batches as KerasHub does, ahead of their use."""
    return batches.map(preprocess, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _holds_ids(x: Any) -> bool:
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


def _from_generator(task: Any, batches: Iterable[Any], steps: int | None = None) -> tf.data.Dataset:
    """Turns batches into a dataset of unknown length; each is `x`, with labels and weights if any.

    Each pass over it iterates the batches anew, if they are a list; of a generator, it goes on
    where the pass before has ended. A pass of `steps` batches takes no more of a generator: those
    that are read ahead, as many as the machine has cores, would be lost to the next pass.
    Raises ValueError if there are no batches.
    """

    def tensors_of(batch: Any) -> tuple[Any, ...]:
        if isinstance(batch, list) and not all(isinstance(text, (str, bytes)) for text in batch):
            raise ValueError(
                "A batch is texts, or a tuple of texts and labels. Received: a list of "
                f"{[type(each).__name__ for each in batch[:3]]}."
            )
        return _tensors(task.read_examples(*(batch if isinstance(batch, tuple) else (batch,))))

    first = next(iter(batches), None)
    if first is None:
        raise ValueError("Expected a generator of batches. Received: an empty one.")
    if isinstance(batches, Iterator):
        batches = itertools.chain([first], batches)
    read = tf.data.Dataset.from_generator(
        lambda: map(tensors_of, itertools.islice(batches, steps)),
        output_signature=keras.tree.map_structure(_any_size, tensors_of(first)),
    )
    return _mapped(without_autotuning(read), task.frame_examples)


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


def blank_examples(preprocessor: Any, read: Any) -> list[bool]:
    """Returns whether an example has a `blank_field`: a text without a token.

    `read` is what the `read` of a preprocessor of ours returned.
    """
    fields = read if isinstance(read, dict) else {"text": read}
    columns = {name: as_lists(texts) for name, texts in fields.items()}
    invisible = list(filter(_is_invisible, set(keras.tree.flatten(columns))))
    # Which of them have no token, only the normalization knows.
    ids = preprocessor.tokenizer.tokenize(invisible) if invisible else []
    blank = {text for text, each in zip(invisible, ids) if not len(each)}
    rows = Examples(columns).rows()
    return [bool(blank and blank_field(row, blank.__contains__)) for row in rows]


def warn_of_blank_examples(preprocessor: Any, examples: Examples | None) -> None:
    """Warns of examples with a text without a token, if they are texts that a task has read."""
    if examples is None or not hasattr(preprocessor, "read"):
        return
    are_blank = blank_examples(preprocessor, examples.texts)
    if any(are_blank):
        warnings.warn(
            "The model reads nothing of a text without a token. Received one in "
            f"{sum(are_blank):,} of {len(are_blank):,} examples, first at index "
            f"{are_blank.index(True)}.",
            stacklevel=3,
        )


def as_lists(texts: Any) -> list[Any]:
    """Returns a batch of texts as a list, of lists where they are choices."""
    if hasattr(texts, "to_list"):
        return texts.to_list()
    return np.asarray(texts).tolist() if hasattr(texts, "shape") else list(texts)


def _is_invisible(text: str | bytes) -> bool:
    """Returns whether a normalization may leave out all characters of a text."""
    if _VISIBLE.search(text if isinstance(text, bytes) else text.encode(errors="replace")):
        return False
    return all(
        each == "\ufffd" or unicodedata.category(each)[0] in _LEFT_OUT for each in as_str(text)
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
        message = found[3] or found[4] or f"{found[1]} {found[2]}."
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

"""Texts in core TensorFlow ops, with equal ids in eager mode, `tf.data` and SavedModels."""

# ruff: noqa: F401, `text_backend` returns this module with what it imports

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.encoder import Encoder
from gpt1_keras.tokenization.input_transformations import (
    frame,
    frame_choices,
    frame_windows,
    interleave,
)
from gpt1_keras.tokenization.padding import as_pairs, pad, pad_choices, pad_windows
from gpt1_keras.tokenization.vocabulary import Vocabulary


def as_texts(x: Any) -> tf.Tensor:
    """Converts a string, or a list, tuple, array, tensor or pandas column of them, to a tensor.

    Raises ValueError if they are not strings, or the lists are not rectangular.
    """
    try:
        return tf.convert_to_tensor(x, tf.string)
    except (TypeError, ValueError):
        raise _refusal(x) from None


def as_choices(x: Any) -> tf.RaggedTensor | tf.Tensor:
    """Converts choices to a ragged tensor, string `[batch, None]`; leaves other ranks as they are.

    Args:
        x: nested lists or a ragged tensor; or a dense tensor or array, in which empty strings after
            an example's last choice are no choices.
    """
    if isinstance(x, (list, tuple)):
        try:
            x = tf.ragged.constant(x, dtype=tf.string)
        except (TypeError, ValueError):
            raise _refusal(x) from None
    if isinstance(x, tf.RaggedTensor):
        return x
    choices = as_texts(x)
    if choices.shape.rank != 2:
        return choices
    columns = tf.shape(choices, tf.int64)[1]
    counts = tf.reduce_max(tf.where(choices != "", tf.range(1, columns + 1), 0), axis=1)
    counts = tf.maximum(counts, 0)  # without columns, the largest is the smallest int64
    is_present = tf.sequence_mask(counts, columns)
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(choices, is_present), counts, validate=False
    )


def check_choices(choices: tf.RaggedTensor, labels: Any = None) -> None:
    """Checks that every example has a choice, and that labels are indices; see `check_each`."""
    counts = choices.row_lengths()
    check_each(counts > 0, "Every example needs a choice. Received numbers of choices:", counts)
    if labels is not None:
        labels = tf.reshape(labels, [-1])
        numbers = tf.cast(labels, tf.int64)
        is_index = (numbers >= 0) & (numbers < counts) & (tf.cast(numbers, labels.dtype) == labels)
        check_each(is_index, "Labels must be indices of choices, from 0. Received:", labels)


def check_each(are_valid: tf.Tensor, message: str, received: tf.Tensor) -> Any:
    """Checks each example, in eager mode and in graphs, where it returns the operation that checks.

    The message, which ends in "Received" and a colon, goes on with the first of `received`,
    `[batch]`, that is not valid, and its index.

    Raises:
        ValueError: one is not valid. In a graph, tf.errors.InvalidArgumentError, when it runs.
    """
    if not tf.executing_eagerly():
        invalid = tf.boolean_mask(received, ~are_valid)
        return tf.debugging.Assert(tf.reduce_all(are_valid), [message, invalid])
    if not np.all(are_valid):
        index = int(np.argmin(are_valid))
        value = np.asarray(received)[index]
        shown = repr(value.decode("utf-8", "replace")) if isinstance(value, bytes) else value
        raise ValueError(f"{message} {shown} at index {index}.")
    return None


def rank(texts: tf.Tensor | tf.RaggedTensor) -> int | None:
    """Returns the number of dimensions of texts that `as_texts` or `as_choices` returned."""
    return texts.shape.rank


def _refusal(x: Any) -> ValueError:
    """Returns the error about an argument that is not strings; it names the first that is not."""
    received = f"{reprlib.repr(x)}, a {type(x).__name__}"
    texts = x.to_numpy() if hasattr(x, "to_numpy") else x
    if isinstance(texts, (list, tuple)) or isinstance(texts, np.ndarray) and texts.ndim:
        known = (str, bytes, list, tuple, np.ndarray)
        wrong = [index for index, text in enumerate(texts) if not isinstance(text, known)]
        received = f"{texts[wrong[0]]!r} at index {wrong[0]}" if wrong else received
    return ValueError(f"Expected a string, or a list or array of strings. Received: {received}.")


class Codec:
    """Texts to ids, and back; `token_texts` are of all ids, those of special tokens included."""

    def __init__(
        self, vocabulary: Vocabulary, token_texts: Sequence[str], normalization: str
    ) -> None:
        # Graphs capture these tables, so they are made outside all graphs.
        with tf.init_scope(), tf.device("cpu"):
            self._token_texts = tf.constant(token_texts)
            encoder = Encoder(vocabulary, normalization)
            self._encode, self._encode_with_offsets = (
                tf.function(
                    function,
                    input_signature=[tf.TensorSpec([None], tf.string)],
                    autograph=False,
                )
                for function in (encoder, encoder.with_offsets)
            )

    def encode(self, texts: Any) -> tf.Tensor | tf.RaggedTensor:
        """Like `GPT1Tokenizer.tokenize`."""
        texts = as_texts(texts)
        with tf.device("cpu"):
            ids = self._encode(tf.reshape(texts, [-1]))
        return _of_shape(ids, texts)

    def encode_with_offsets(self, texts: Any) -> tuple[Any, Any, Any]:
        """Like `GPT1Tokenizer.tokenize_with_offsets`."""
        texts = as_texts(texts)
        with tf.device("cpu"):
            ids, starts, ends = self._encode_with_offsets(tf.reshape(texts, [-1]))
        ragged = (ids, ids.with_values(starts), ids.with_values(ends))
        return tuple(_of_shape(each, texts) for each in ragged)

    def encode_each(self, batches: Sequence[Any]) -> list[tf.RaggedTensor]:
        """Like `GPT1Tokenizer.tokenize_each`."""
        if len(batches) == 1:
            return [self.encode(batches[0])]
        flat = [batch.values if _is_ragged(batch) else batch for batch in batches]
        ids = self.encode(tf.concat(flat, axis=0))
        lengths = tf.split(ids.row_lengths(), [tf.size(batch) for batch in flat])
        values = tf.split(ids.values, [tf.reduce_sum(each) for each in lengths])
        rows = [
            tf.RaggedTensor.from_row_lengths(*each, validate=False) for each in zip(values, lengths)
        ]
        return [
            batch.with_values(each) if _is_ragged(batch) else each
            for batch, each in zip(batches, rows)
        ]

    def decode(self, ids: Any, padding: int) -> str | list[str] | tf.Tensor:
        """Like `GPT1Tokenizer.detokenize`."""
        if isinstance(ids, (list, tuple)):
            ids = tf.ragged.constant(ids, tf.int32)
        elif not isinstance(ids, tf.RaggedTensor):
            ids = tf.convert_to_tensor(ids)
            if not ids.dtype.is_integer:
                raise ValueError(f"Expected ids, integers. Received: {ids.dtype.name}.")
            if ids.dtype not in (tf.int32, tf.int64):
                ids = tf.cast(ids, tf.int32)
            if ids.shape.rank == 2:
                ids = tf.RaggedTensor.from_tensor(ids, padding=padding)
        texts = tf.ragged.map_flat_values(tf.gather, self._token_texts, ids)
        texts = tf.strings.strip(tf.strings.reduce_join(texts, axis=-1))
        if not tf.executing_eagerly():
            return texts
        texts = texts.numpy()
        if isinstance(texts, bytes):
            return texts.decode("utf-8")
        return [text.decode("utf-8") for text in texts]


def _is_ragged(batch: tf.Tensor | tf.RaggedTensor) -> bool:
    return isinstance(batch, tf.RaggedTensor)


def _of_shape(ragged: tf.RaggedTensor, texts: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
    """Reshapes `[texts, None]` to the shape of texts, plus the ragged dimension."""
    if texts.shape.rank == 0:
        return ragged.values
    shape = tf.shape(texts, tf.int64)
    for axis in reversed(range(1, texts.shape.rank)):
        ragged = tf.RaggedTensor.from_uniform_row_length(
            ragged, shape[axis], nrows=tf.reduce_prod(shape[:axis])
        )
    return ragged

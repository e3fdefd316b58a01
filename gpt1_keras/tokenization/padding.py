"""Padding framed ids to lengths that batches share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from gpt1_keras.lazy import tensorflow as tf

SMALLEST_BUCKET = 16

# What all sequences of a batch are padded to.
PadTo: TypeAlias = Literal["sequence_length", "bucket", "longest"]


class SpecialIds(Protocol):
    """What framing and padding need of a tokenizer, such as `GPT1Tokenizer`."""

    pad_token_id: int
    start_token_id: int
    delimiter_token_id: int
    extract_token_id: int


def bucket_lengths(sequence_length: int) -> list[int]:
    """Returns the lengths to pad sequences to: 16, 24, 32, 48, 64, ... and `sequence_length`.

    As each is 1.5 or 1.33 times the one before, at most a third of a sequence is padding, and a
    graph has a dozen shapes.
    """
    lengths = []
    length = SMALLEST_BUCKET
    while length < sequence_length:
        lengths += [length, length + length // 2]
        length *= 2
    return [length for length in lengths if length < sequence_length] + [sequence_length]


def choice_lengths(sequence_length: int, pad_to: PadTo) -> list[int]:
    """Returns the lengths that all branches of a question are padded to; see `pad_choices`."""
    is_fixed = pad_to == "sequence_length"
    lengths = [sequence_length] if is_fixed else bucket_lengths(sequence_length)
    # All branches of a question together may be longer than `sequence_length`.
    return lengths + [sequence_length * 2**i for i in range(1, 8)]


def pad(
    ids: tf.RaggedTensor, tokenizer: SpecialIds, sequence_length: int, pad_to: PadTo = "bucket"
) -> dict[str, tf.Tensor]:
    """Pads ids, int32 `[batch, None]`, on the right.

    Args:
        ids: no row is longer than `sequence_length`, unless that is `pad_to`.
        tokenizer: for the padding id.
        sequence_length: the longest bucket.
        pad_to: `"bucket"` for the smallest that holds the longest sequence, `"longest"` for that
            sequence's own length, or `"sequence_length"`, to which longer ones are truncated.

    Returns a dict of int32 `[batch, length]`: `token_ids`, and `padding_mask`, 1 for tokens.
    """
    is_fixed = pad_to == "sequence_length"
    length = sequence_length if is_fixed else _length(ids, bucket_lengths(sequence_length), pad_to)
    shape = [None, length] if is_fixed else tf.stack([-1, length])
    return {
        "token_ids": ids.to_tensor(tokenizer.pad_token_id, shape=shape),
        "padding_mask": tf.sequence_mask(ids.row_lengths(), length, tf.int32),
    }


def as_pairs(rows: tf.Tensor) -> tf.Tensor:
    """Returns the padded rows of `interleave` by pair: `[2 * batch, length]` to `[batch, 2, _]`."""
    return tf.reshape(rows, [-1, 2, rows.shape[1] or tf.shape(rows)[1]])


def pad_windows(
    ids: tf.RaggedTensor,
    tokenizer: SpecialIds,
    sequence_length: int,
    windows: int,
    pad_to: PadTo = "bucket",
) -> dict[str, tf.Tensor]:
    """Pads what `frame_windows` returns; all else is as for `pad`.

    Returns a dict of int32 `[batch, windows, length]`, in which an absent window is all padding.
    There are `windows` with `"sequence_length"`, and otherwise as many as the batch's longest text
    has, with `"bucket"` the next of `window_counts`.
    """
    rows = pad(ids.values, tokenizer, sequence_length, pad_to)
    if pad_to == "sequence_length":
        shape = [None, windows, sequence_length]
    else:
        count = _length(ids, window_counts(windows), pad_to)
        shape = tf.stack([-1, count, tf.shape(rows["token_ids"], count.dtype)[1]])
    padding = {"token_ids": tokenizer.pad_token_id, "padding_mask": 0}
    return {
        name: ids.with_values(rows[name]).to_tensor(padding[name], shape=shape) for name in rows
    }


def window_counts(windows: int) -> list[int]:
    """Returns the numbers of windows to pad to: 1, 2, 4, ... and `windows`, the most of a text."""
    return [*(2**i for i in range((windows - 1).bit_length())), windows]


def pad_choices(
    sequence: dict[str, tf.RaggedTensor],
    tokenizer: SpecialIds,
    sequence_length: int,
    pad_to: PadTo = "bucket",
) -> dict[str, tf.Tensor]:
    """Pads what `frame_choices` returns; `pad_to` is as for `pad`.

    All branches together may be longer than `sequence_length`, which is then doubled until it holds
    the longest sequence.

    Returns:
        A dict of int32 `[batch, length]`: `token_ids`, `positions`, and `branches`, which is -1 for
        padding; and of int32 `[batch, most choices]`: `extract_indices`, the index at which each
        branch ends, or -1 if an example has fewer choices.
    """
    lengths = choice_lengths(sequence_length, pad_to)
    length = _length(sequence["token_ids"], lengths, pad_to)
    padding = {"token_ids": tokenizer.pad_token_id, "positions": 0, "branches": -1}
    padded = {
        name: ragged.to_tensor(padding[name], shape=tf.stack([-1, length]))
        for name, ragged in sequence.items()
    }
    ends = tf.where(padded["token_ids"] == tokenizer.extract_token_id)
    padded["extract_indices"] = tf.RaggedTensor.from_value_rowids(
        tf.cast(ends[:, 1], tf.int32),
        ends[:, 0],
        nrows=sequence["token_ids"].nrows(),
        validate=False,
    ).to_tensor(-1)
    return padded


def _length(ids: tf.RaggedTensor, lengths: Sequence[int], pad_to: PadTo) -> tf.Tensor:
    """Returns the longest row's length, at least 1, or the smallest of `lengths` for it."""
    longest = tf.reduce_max(tf.concat([ids.row_lengths(), [1]], axis=0))
    if pad_to == "longest":
        return longest
    ascending = tf.constant(lengths, tf.int64)
    return tf.reduce_min(tf.boolean_mask(ascending, ascending >= longest))

"""Padding framed ids to lengths that batches share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpt1_keras.lazy import tensorflow as tf

if TYPE_CHECKING:
    from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer

SMALLEST_BUCKET = 16


def bucket_lengths(sequence_length: int) -> list[int]:
    """The lengths that sequences are padded to: 16, 24, 32, 48, 64, ... and `sequence_length`.

    As each is 1.5 or 1.33 times the one before, at most a third of a sequence is padding, and a
    graph has a dozen shapes.
    """
    lengths = []
    length = SMALLEST_BUCKET
    while length < sequence_length:
        lengths += [length, length + length // 2]
        length *= 2
    return [length for length in lengths if length < sequence_length] + [sequence_length]


def choice_lengths(sequence_length: int, to_bucket: bool) -> list[int]:
    """The lengths that all branches of a question are padded to; see `pad_choices`."""
    lengths = bucket_lengths(sequence_length) if to_bucket else [sequence_length]
    # All branches of a question together may be longer than `sequence_length`.
    return lengths + [sequence_length * 2**i for i in range(1, 8)]


def pad(
    ids: tf.RaggedTensor, tokenizer: GPT1Tokenizer, sequence_length: int, to_bucket: bool = True
) -> dict[str, tf.Tensor]:
    """Pads ids on the right.

    Args:
        ids: int32 `[batch, None]`, no row longer than `sequence_length` if `to_bucket`.
        tokenizer: for the padding id.
        sequence_length: the longest bucket.
        to_bucket: whether to pad to the smallest bucket that holds the longest sequence; otherwise
            sequences are padded or truncated to `sequence_length`.

    Returns:
        A dict of int32 `[batch, length]`: `token_ids`, and `padding_mask`, 1 for tokens.
    """
    length = _smallest(bucket_lengths(sequence_length), ids) if to_bucket else sequence_length
    shape = tf.stack([-1, length]) if to_bucket else [None, length]
    return {
        "token_ids": ids.to_tensor(tokenizer.pad_token_id, shape=shape),
        "padding_mask": tf.sequence_mask(ids.row_lengths(), length, tf.int32),
    }


def pad_both_orders(
    ids: tf.RaggedTensor, tokenizer: GPT1Tokenizer, sequence_length: int, to_bucket: bool = True
) -> dict[str, tf.Tensor]:
    """Pads what `frame_both_orders` returns, as `pad` does, to int32 `[batch, 2, length]`."""
    return {
        name: tf.reshape(tensor, [-1, 2, tf.shape(tensor)[1] if to_bucket else sequence_length])
        for name, tensor in pad(ids, tokenizer, sequence_length, to_bucket).items()
    }


def pad_choices(
    sequence: dict[str, tf.RaggedTensor],
    tokenizer: GPT1Tokenizer,
    sequence_length: int,
    to_bucket: bool = True,
) -> dict[str, tf.Tensor]:
    """Pads what `frame_choices` returns.

    Args:
        sequence: a dict of int32 `[batch, None]`: `token_ids`, `positions` and `branches`.
        tokenizer: for the padding id.
        sequence_length: as for `frame_choices`; all branches together may be longer.
        to_bucket: whether to pad to the smallest bucket that holds the longest sequence; otherwise
            to `sequence_length`, doubled until it does.

    Returns:
        A dict of int32 `[batch, length]`: `token_ids`, `positions`, and `branches`, which is -1 for
        padding; and of int32 `[batch, most choices]`: `extract_indices`, the index at which each
        branch ends, or -1 if an example has fewer choices.
    """
    length = _smallest(choice_lengths(sequence_length, to_bucket), sequence["token_ids"])
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


def _smallest(lengths: Sequence[int], ids: tf.RaggedTensor) -> tf.Tensor:
    """The smallest of the lengths that holds all rows."""
    ascending = tf.constant(lengths, tf.int64)
    longest = tf.reduce_max(tf.concat([ids.row_lengths(), [0]], axis=0))
    return tf.reduce_min(tf.boolean_mask(ascending, ascending >= longest))

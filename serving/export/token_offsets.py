"""Finds the ranges of bytes in a request's texts that the model's tokens came from."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer

STARTS, ENDS = "starts", "ends"  # the names of outputs


def has_offsets(preprocessor: Any) -> bool:
    """Returns whether a preprocessor has `frame`; a user's may only have `transform`."""
    classes = type(preprocessor).__mro__
    transform, frame = (
        next((index for index, cls in enumerate(classes) if name in vars(cls)), len(classes))
        for name in ("transform", "frame")
    )
    return isinstance(preprocessor, FieldsPreprocessor) and frame <= transform


def tokenize_each_with_offsets(
    tokenizer: GPT1Tokenizer, batches: Sequence[Any]
) -> tuple[list[Any], list[Any], list[Any]]:
    """Tokenizes several batches of strings in one call, and finds each token's range of bytes.

    Args:
        batches: string `[batch]` each, or ragged `[batch, None]`.

    Returns:
        `(ids, starts, ends)`, each a list of int32 tensors with one more, ragged dimension.
    """
    flat = [each.values if isinstance(each, tf.RaggedTensor) else each for each in batches]
    ids, *offsets = tokenizer.tokenize_with_offsets(tf.concat(flat, axis=0))
    ragged = [ids, *(tf.cast(each, tf.int32) for each in offsets)]
    split: list[list[Any]] = [[], [], []]
    row = tf.zeros((), tf.int32)
    for batch, texts in zip(batches, flat):
        end = row + tf.size(texts)
        for rows, each in zip(split, ragged):
            part = each[row:end]
            rows.append(batch.with_values(part) if isinstance(batch, tf.RaggedTensor) else part)
        row = end
    return split[0], split[1], split[2]


def framed_offsets(
    preprocessor: FieldsPreprocessor,
    inputs: dict[str, tf.Tensor],
    segments: list[Any],
    starts: list[Any],
    ends: list[Any],
) -> dict[str, tf.Tensor]:
    """Returns the ranges of bytes of the tokens in the model's inputs.

    Args:
        inputs: the model's inputs, with `token_ids`, int32 `[batch, ..., length]`.
        segments, starts, ends: as `tokenize_each_with_offsets` returns them.

    Returns:
        `starts` and `ends`, int32 of the shape of `token_ids`; -1 for special tokens and padding.
    """
    ids = inputs["token_ids"]
    is_token = tf.sequence_mask(preprocessor.count_tokens(inputs), tf.shape(ids)[-1])
    if ids.shape.rank == 3:
        is_token = is_token[:, tf.newaxis]
    for special in preprocessor.tokenizer.special_token_ids:
        is_token &= ids != special
    framed = {
        name: preprocessor.pad(preprocessor.frame_values(segments, values))["token_ids"]
        for name, values in ((STARTS, starts), (ENDS, ends))
    }
    return {name: tf.where(is_token, values, -1) for name, values in framed.items()}

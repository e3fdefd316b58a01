"""Texts that keep, while they are changed, where each of their code points came from.

The functions take plain strings, too, and then do nothing more than the change itself: what turns
texts into words is written once, and keeps the ranges only where it is asked for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.ragged import concatenate, join_rows, row_indices

_MARK = b"\xff"  # no byte of UTF-8


class AlignedTexts(NamedTuple):
    """Texts, and where each of their code points came from.

    Attributes:
        strings: string `[n]`, valid UTF-8.
        starts, ends: int64 `[code points]`, of all texts in turn: the range of bytes that each came
            from, in all original texts put together.
    """

    strings: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor


Texts: TypeAlias = "tf.Tensor | AlignedTexts"  # string [n]


def align(texts: tf.Tensor) -> AlignedTexts:
    """Aligns texts with themselves: string `[n]`. Invalid bytes become U+FFFD."""
    codes, starts, ends = decode_with_ranges(texts)
    return AlignedTexts(tf.strings.unicode_encode(codes, "UTF-8"), starts, ends)


def decode_with_ranges(texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Decodes texts, string `[n]`; invalid bytes become U+FFFD.

    Returns:
        `(codes, starts, ends)`: int32 `[n, None]`, and for each of them, int64 `[code points]`, its
        range of bytes in all texts put together.
    """
    codes, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="replace")
    first = byte_splits(texts)
    starts = offsets.values + tf.gather(first, row_indices(codes.row_splits))
    # Every byte belongs to a code point, so one ends where the next one starts.
    ends = tf.concat([starts, first[-1:]], 0)[1 : 1 + tf.size(starts)]
    return codes, starts, ends


def byte_splits(texts: tf.Tensor) -> tf.Tensor:
    """Where each text starts among the bytes of all, and their number: int64 `[n + 1]`."""
    return _splits(tf.cast(tf.strings.length(texts), tf.int64))


def strings_of(texts: Texts) -> tf.Tensor:
    """The strings of texts, `[n]`."""
    return texts.strings if isinstance(texts, AlignedTexts) else texts


def take(texts: Texts, indices: tf.Tensor) -> Texts:
    """The texts at indices, int `[m, 1]`."""
    strings = tf.gather_nd(strings_of(texts), indices)
    if not isinstance(texts, AlignedTexts):
        return strings
    splits = _splits(_code_points(texts.strings))
    rows = tf.RaggedTensor.from_row_splits(tf.range(splits[-1]), splits, validate=False)
    wanted = tf.reshape(indices, [-1])
    wanted = tf.RaggedTensor.from_row_splits(
        wanted, tf.stack([0, tf.size(wanted, tf.int64)]), validate=False
    )
    sources = join_rows(rows, wanted).values
    return AlignedTexts(strings, tf.gather(texts.starts, sources), tf.gather(texts.ends, sources))


def put(texts: Texts, indices: tf.Tensor, changed: Texts) -> Texts:
    """Replaces the texts at indices, int64 `[m, 1]`, by others, `[m]`."""
    if not isinstance(texts, AlignedTexts):
        return tf.tensor_scatter_nd_update(texts, indices, changed)
    rows = tf.range(tf.size(texts.strings))
    others = tf.size(rows) + tf.range(tf.size(changed.strings))
    rows = tf.tensor_scatter_nd_update(rows, indices, others)
    return take(_concat([texts, changed]), rows[:, None])


def select(condition: tf.Tensor, texts: Texts, others: Texts) -> Texts:
    """`tf.where` of texts: bool `[n]`, or one for all."""
    if not isinstance(texts, AlignedTexts):
        return tf.where(condition, texts, others)
    rows = tf.range(tf.size(texts.strings))
    rows = tf.where(condition, rows, tf.size(rows) + rows)
    return take(_concat([texts, others]), rows[:, None])


def regroup(texts: Texts, strings: tf.Tensor) -> Texts:
    """The same number of code points as other strings: joined, cut, or each replaced by one."""
    return texts._replace(strings=strings) if isinstance(texts, AlignedTexts) else strings


def regex_replace(texts: Texts, pattern: str, rewrite: str) -> Texts:
    """Replaces what a pattern without anchors matches; it comes from all that was matched."""
    if not isinstance(texts, AlignedTexts):
        return tf.strings.regex_replace(texts, pattern, rewrite)
    pieces = split_at_matches(texts, pattern)
    return replace_pieces(texts, pieces, tf.strings.regex_replace(pieces.values, pattern, rewrite))


def split_at_matches(texts: Texts, pattern: str, before: str = "") -> tf.RaggedTensor:
    """Cuts texts, `[n]`, around what a pattern matches, to string `[n, None]`.

    `before` is a pattern, without groups, of what must precede it.
    """
    rewrite = rb"\1" + _MARK + rb"\2" + _MARK
    marked = tf.strings.regex_replace(strings_of(texts), f"({before})({pattern})", rewrite)
    return tf.strings.split(marked, _MARK)


def replace_pieces(texts: Texts, pieces: tf.RaggedTensor, changed: tf.Tensor) -> Texts:
    """Replaces pieces of texts by others.

    Args:
        texts: `[n]`.
        pieces: string `[n, None]`, what texts are made of.
        changed: string `[pieces]`. Where a piece has as many code points as before, each comes from
            its own; otherwise, all of them come from the whole piece.
    """
    strings = concatenate(pieces.with_values(changed))
    if not isinstance(texts, AlignedTexts):
        return strings
    lengths = _code_points(pieces.values)
    splits = _splits(_code_points(changed))
    piece = row_indices(splits)
    within = tf.range(splits[-1]) - tf.gather(splits, piece)
    is_each = tf.gather(splits[1:] - splits[:-1] == lengths, piece)
    first = tf.gather(tf.cumsum(lengths, exclusive=True), piece)
    last = first + tf.where(is_each, within, tf.gather(lengths, piece) - 1)
    first += tf.where(is_each, within, 0)
    return AlignedTexts(strings, tf.gather(texts.starts, first), tf.gather(texts.ends, last))


def _concat(texts: Sequence[AlignedTexts]) -> AlignedTexts:
    return AlignedTexts(*(tf.concat(column, 0) for column in zip(*texts)))


def _code_points(strings: tf.Tensor) -> tf.Tensor:
    """How many code points strings have: int64 `[n]`."""
    return tf.cast(tf.strings.length(strings, unit="UTF8_CHAR"), tf.int64)


def _splits(lengths: tf.Tensor) -> tf.Tensor:
    return tf.concat([[0], tf.cumsum(lengths)], 0)

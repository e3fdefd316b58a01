"""Texts that remember, while they are changed, which bytes each of their code points came from.

All functions also take plain strings, and then only change them. So the code that turns texts into
words is written once, and its graph holds ops for the ranges only where a caller wants them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.graph_ops import (
    call_if,
    concatenate,
    join_rows,
    row_indices,
    row_splits,
)

_MARK = b"\xff"  # no byte of UTF-8


class AlignedTexts(NamedTuple):
    """Texts, string `[n]` of valid UTF-8, and where each of their code points came from.

    `starts` and `ends`, int64 `[code points]`, are the range of bytes that it came from in the
    concatenation of all original texts.
    """

    strings: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor


Texts: TypeAlias = "tf.Tensor | AlignedTexts"  # string [n]


def decode_with_ranges(texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Decodes texts, string `[n]`; invalid bytes become U+FFFD.

    Returns `(codes, starts, ends)`: int32 `[n, None]`; and int64 `[code points]` twice, the range
    of bytes of each code point in the concatenation of all texts.
    """
    codes, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="replace")
    first = byte_splits(texts)
    starts = offsets.values + tf.gather(first, row_indices(codes.row_splits))
    # Every byte belongs to a code point, so each code point ends where the next one starts.
    ends = tf.concat([starts, first[-1:]], 0)[1 : 1 + tf.size(starts)]
    return codes, starts, ends


def byte_splits(texts: tf.Tensor) -> tf.Tensor:
    """Returns the byte that each text starts at in the concatenation of all, and its length.

    String `[n]` to int64 `[n + 1]`.
    """
    return row_splits(tf.cast(tf.strings.length(texts), tf.int64))


def align(texts: tf.Tensor) -> AlignedTexts:
    """Aligns texts with themselves: string `[n]`. Invalid bytes become U+FFFD."""
    codes, starts, ends = decode_with_ranges(texts)
    return AlignedTexts(tf.strings.unicode_encode(codes, "UTF-8"), starts, ends)


def strings_of(texts: Texts) -> tf.Tensor:
    """Returns the strings of texts, `[n]`."""
    return texts.strings if isinstance(texts, AlignedTexts) else texts


def is_ascii(texts: Texts) -> tf.Tensor:
    """Returns whether each text is ASCII: bool `[n]`."""
    return tf.strings.regex_full_match(strings_of(texts), r"[\x00-\x7f]*")


def take(texts: Texts, indices: tf.Tensor) -> Texts:
    """Returns the texts at indices, int `[m, 1]`."""
    if not isinstance(texts, AlignedTexts):
        return tf.gather_nd(texts, indices)
    return AlignedTexts(*_shared(_take)(*texts, tf.cast(indices, tf.int64)[:, 0]))


def _take(
    strings: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor, rows: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    splits = row_splits(_count_code_points(strings))
    code_points = tf.RaggedTensor.from_row_splits(tf.range(splits[-1]), splits, validate=False)
    wanted = tf.RaggedTensor.from_row_splits(
        rows, tf.stack([0, tf.size(rows, tf.int64)]), validate=False
    )
    sources = join_rows(code_points, wanted).values
    return tf.gather(strings, rows), tf.gather(starts, sources), tf.gather(ends, sources)


def put(texts: Texts, indices: tf.Tensor, changed: Texts) -> Texts:
    """Replaces the texts at indices, int64 `[m, 1]`, by others, `[m]`."""
    if not isinstance(texts, AlignedTexts):
        return tf.tensor_scatter_nd_update(texts, indices, changed)
    rows = tf.range(tf.size(texts.strings))
    others = tf.size(rows) + tf.range(tf.size(changed.strings))
    rows = tf.tensor_scatter_nd_update(rows, indices, others)
    return take(_concat([texts, changed]), rows[:, None])


def select(condition: tf.Tensor, texts: Texts, others: Texts) -> Texts:
    """Selects texts as `tf.where` does; the condition is bool `[n]`, or one for all."""
    if not isinstance(texts, AlignedTexts):
        return tf.where(condition, texts, others)
    rows = tf.range(tf.size(texts.strings))
    rows = tf.where(condition, rows, tf.size(rows) + rows)
    return take(_concat([texts, others]), rows[:, None])


def update_where(condition: tf.Tensor, function: Callable[[Texts], Texts], texts: Texts) -> Texts:
    """Applies a function to the texts, `[n]`, for which a condition, bool `[n]`, holds.

    The function takes and returns texts `[m]`. It does not run if no text needs it.
    """

    def update() -> Texts:
        indices = tf.where(condition)
        return put(texts, indices, function(take(texts, indices)))

    return call_if(tf.reduce_any(condition), update, lambda: texts)


def repeat(function: Callable[[Texts], Texts], texts: Texts, rounds: int) -> Texts:
    """Applies a function of texts, `[n]`, until it changes nothing, but at most `rounds` times."""

    def apply(texts: Texts, changes: tf.Tensor) -> tuple[Texts, tf.Tensor]:
        changed = function(texts)
        return changed, tf.reduce_any(strings_of(changed) != strings_of(texts))

    return tf.while_loop(
        lambda texts, changes: changes,
        apply,
        (texts, tf.size(strings_of(texts)) > 0),
        shape_invariants=(loop_shapes(texts), tf.TensorShape([])),
        maximum_iterations=rounds,
    )[0]


def loop_shapes(texts: Texts) -> Any:
    """Returns the shape invariants of texts that a loop changes."""
    return tf.nest.map_structure(lambda _: tf.TensorShape([None]), texts)


def with_strings(texts: Texts, strings: tf.Tensor) -> Texts:
    """Puts strings, `[m]`, in place of those of texts, and keeps the ranges.

    All strings together must have as many code points as before. They may be the old ones joined
    or cut, or have each code point replaced by one other.
    """
    return texts._replace(strings=strings) if isinstance(texts, AlignedTexts) else strings


def regex_replace(texts: Texts, pattern: str, rewrite: str) -> Texts:
    """Replaces each match of a pattern without anchors; what replaces it has its whole range."""
    if not isinstance(texts, AlignedTexts):
        return tf.strings.regex_replace(texts, pattern, rewrite)
    parts = split_at_matches(texts, pattern)
    return replace_parts(texts, parts, tf.strings.regex_replace(parts.values, pattern, rewrite))


def split_at_matches(texts: Texts, pattern: str, before: str = "") -> tf.RaggedTensor:
    """Cuts texts around the matches of a pattern: `[n]` to string `[n, None]`.

    `before` is a pattern, without groups, that must match just before it.
    """
    rewrite = rb"\1" + _MARK + rb"\2" + _MARK
    marked = tf.strings.regex_replace(strings_of(texts), f"({before})({pattern})", rewrite)
    return tf.strings.split(marked, _MARK)


def replace_parts(texts: Texts, parts: tf.RaggedTensor, changed: tf.Tensor) -> Texts:
    """Replaces the parts of texts, string `[n, None]`, by others, string `[parts]`.

    Where a part has as many code points as before, each keeps its own range; otherwise, each has
    the range of the whole part.
    """
    strings = concatenate(parts.with_values(changed))
    if not isinstance(texts, AlignedTexts):
        return strings
    return AlignedTexts(
        strings, *_shared(_ranges_of_changed)(parts.values, texts.starts, texts.ends, changed)
    )


def _ranges_of_changed(
    parts: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor, changed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the starts and ends of the code points of changed parts; see `replace_parts`."""
    lengths = _count_code_points(parts)
    splits = row_splits(_count_code_points(changed))
    part = row_indices(splits)
    within = tf.range(splits[-1]) - tf.gather(splits, part)
    is_each = tf.gather(splits[1:] - splits[:-1] == lengths, part)
    first = tf.gather(tf.cumsum(lengths, exclusive=True), part)
    last = first + tf.where(is_each, within, tf.gather(lengths, part) - 1)
    first += tf.where(is_each, within, 0)
    return tf.gather(starts, first), tf.gather(ends, last)


@functools.cache
def _shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function that graphs call: inlined, its copies would be most of their ops."""
    last = tf.int64 if function is _take else tf.string
    return tf.function(
        function,
        input_signature=[
            tf.TensorSpec([None], dtype) for dtype in (tf.string, tf.int64, tf.int64, last)
        ],
        autograph=False,
        experimental_attributes={"_noinline": True},
    )


def _concat(texts: Sequence[AlignedTexts]) -> AlignedTexts:
    return AlignedTexts(*(tf.concat(column, 0) for column in zip(*texts)))


def _count_code_points(strings: tf.Tensor) -> tf.Tensor:
    """Returns how many code points strings have: int64 `[n]`."""
    return tf.cast(tf.strings.length(strings, unit="UTF8_CHAR"), tf.int64)

"""The range of bytes of each code point of UTF-8 strings."""

from __future__ import annotations

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.ragged import row_indices, row_splits


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

"""Chunks to tokens, by spaCy 2.0's rules for English.

spaCy takes a prefix and a suffix off a chunk, again and again, until the rest has neither, is an
exception or is a URL. It then cuts the rest at infixes. Here all chunks take each step together. A
chunk's tokens are one string, separated by spaces.
"""

from __future__ import annotations

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.control_flow import update_where
from gpt1_keras.tokenization.lookup import StringTable
from gpt1_keras.tokenization.normalization.original.resources import load_resources

# spaCy has no such bound. No real text needs 64 steps; of a longer run of prefixes or suffixes, the
# rest stays one token, so that hostile input takes time linear in its length.
MAX_STEPS = 64


class Splitter:
    """Splits chunks into tokens, without lower-casing them."""

    def __init__(self) -> None:
        tables = load_resources()
        self._patterns = tables["patterns"]
        exceptions = {chunk: " ".join(tokens) for chunk, tokens in tables["exceptions"].items()}
        self._exceptions = StringTable(list(exceptions), tf.constant(list(exceptions.values())))

    def __call__(self, chunks: tf.Tensor) -> tf.Tensor:
        """Splits chunks, string `[n]`, into their tokens, separated by spaces, string `[n]`.

        Chunks are not empty, have no white space, and are separated from what text_standardize
        separates.
        """
        texts, is_exception = self._replace_exceptions(chunks)
        return update_where(~is_exception & ~self._is_whole(chunks), self._split, texts)

    def _replace_exceptions(self, chunks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Replaces the chunks that are exceptions by their tokens; also returns which are."""
        tokens, is_exception = self._exceptions(chunks)
        return tf.where(is_exception, tokens, chunks), is_exception

    def _is_whole(self, chunks: tf.Tensor) -> tf.Tensor:
        """Returns whether each chunk, if not an exception, stays whole, such as a URL or word."""
        return tf.strings.regex_full_match(chunks, self._patterns["whole"])

    def _split(self, chunks: tf.Tensor) -> tf.Tensor:
        """Splits chunks that are neither exceptions nor whole."""
        empty = tf.fill(tf.shape(chunks), "")
        _, before, core, after = tf.while_loop(
            lambda active, *_: tf.size(active) > 0,
            self._step,
            (tf.range(tf.size(chunks)), empty, chunks, empty),
            shape_invariants=(tf.TensorShape([None]),) * 4,
            maximum_iterations=MAX_STEPS,
        )
        texts, is_exception = self._replace_exceptions(core)
        is_whole = is_exception | self._is_whole(core)
        return before + tf.where(is_whole, texts, self._cut_at_infixes(core)) + after

    def _step(
        self, active: tf.Tensor, before: tf.Tensor, core: tf.Tensor, after: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Takes a prefix and a suffix off each chunk at the indices `active`."""
        texts = tf.gather(core, active)
        length = tf.strings.length(texts)
        prefix = length - tf.strings.length(self._remove(texts, "prefix"))
        suffix = self._suffix(texts, length)
        # If a prefix and a suffix overlap, only the prefix is taken.
        fitting = tf.where(prefix + suffix <= length, suffix, 0)
        without_prefix = tf.strings.substr(texts, prefix, length - prefix)
        without_suffix = tf.strings.substr(texts, tf.zeros_like(suffix), length - suffix)
        inner = tf.strings.substr(texts, prefix, length - prefix - fitting)
        _, found = self._exceptions(tf.concat([without_prefix, without_suffix, inner], 0))
        after_prefix, before_suffix, within = tf.unstack(tf.reshape(found, [3, -1]))
        # If taking off one of the two leaves an exception, the other one stays.
        suffix = tf.where(after_prefix, 0, tf.where(before_suffix, suffix, fitting))
        prefix = tf.where(before_suffix & ~after_prefix, 0, prefix)
        rest = tf.strings.substr(texts, prefix, length - prefix - suffix)
        is_done = after_prefix | before_suffix | within | (prefix + suffix == 0)
        is_done |= self._is_whole(rest)
        indices = active[:, None]
        start = tf.strings.substr(texts, tf.zeros_like(prefix), prefix)
        end = tf.strings.substr(texts, length - suffix, suffix)
        return (
            tf.boolean_mask(active, ~is_done),
            tf.tensor_scatter_nd_update(before, indices, tf.gather(before, active) + start + " "),
            tf.tensor_scatter_nd_update(core, indices, rest),
            tf.tensor_scatter_nd_update(after, indices, " " + end + tf.gather(after, active)),
        )

    def _suffix(self, texts: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        """Returns the length in bytes of each text's longest suffix: int32 `[n]`."""
        anywhere = length - tf.strings.length(self._remove(texts, "suffix"))
        with_digit = length - tf.strings.length(self._remove(texts, "suffix_after_digit"))
        is_dot = tf.strings.regex_full_match(texts, self._patterns["suffix_dot"])
        return tf.maximum(tf.maximum(anywhere, with_digit - 1), tf.cast(is_dot, tf.int32))

    def _remove(self, texts: tf.Tensor, name: str) -> tf.Tensor:
        """Removes what a pattern matches from texts."""
        return tf.strings.regex_replace(texts, self._patterns[name], "")

    def _cut_at_infixes(self, texts: tf.Tensor) -> tf.Tensor:
        """Puts spaces around infixes."""
        texts = tf.strings.regex_replace(texts, self._patterns["infix"], r" \0 ")
        for _ in range(2):  # the second time for infixes one character apart, as in a:b:c
            texts = tf.strings.regex_replace(
                texts, self._patterns["infix_between"], r"\1\4\7 \2\5\8 \3\6\9"
            )
        return texts

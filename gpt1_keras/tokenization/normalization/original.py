"""The `original` normalization: text to the words that GPT-1 was trained on."""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Any, ClassVar

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.graph_ops import row_indices, row_splits, split_at_white_space
from gpt1_keras.tokenization.lookup import StringTable
from gpt1_keras.tokenization.normalization.ftfy import Cleaner
from gpt1_keras.tokenization.offsets import AlignedTexts, align, is_ascii, update_where

TABLES_FILE = pathlib.Path(__file__).with_name("original_tables.json")
# spaCy has no such bound. No real text needs 64 steps; of a longer run of prefixes or suffixes, the
# rest stays one token, so that hostile input takes time linear in its length.
MAX_STEPS = 64

_WHITE_SPACE = "\t\n\v\f\r "
_DOTTED_I = "İ"  # the only character whose lower case is two characters
_LINE_END = "\x01"  # stands for "\n" while white space separates words; no cleaned text holds it


@functools.cache
def read_tables() -> dict[str, Any]:
    """Reads original_tables.json, a dict:

    - `sources`: the SHA-256 of each wheel that it was made from.
    - `unicode`: the version of Unicode.
    - `patterns`: RE2 patterns by name.
    - `exceptions`: those of spaCy's exceptions that can occur, with the list of their tokens.
    - `characters`: code points above ASCII that ftfy changes, with what it makes of them.
    - `compositions`: pairs of code points, with the code point that NFC composes them to.
    - `entities`: HTML entities, with what they stand for.
    - `references`: code points that `&#...;` does not stand for, with what it stands for instead.
    - `encodings`: encodings in which text may have been misread, with the text of their 256 bytes.
    """
    return json.loads(TABLES_FILE.read_text(encoding="utf-8"))


class OriginalNormalizer:
    """Splits texts into words: ftfy, text_standardize, spaCy 2.0, lower case.

    These are the steps of text_utils.py in openai/finetune-transformer-lm.
    """

    name: ClassVar[str] = "original"
    line_end: ClassVar[str | None] = "\n"

    def __init__(self) -> None:
        tables = read_tables()
        self._clean = Cleaner(tables)
        self._split_chunks = Splitter(tables)
        self._punctuation = tables["patterns"]["punctuation"]

    def split(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Splits texts into chunks at white space; see `Normalizer`. Invalid bytes are U+FFFD."""
        return self._split_cleaned(self._clean(texts))

    def split_with_ranges(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        cleaned = self._clean(align(texts))
        return *self._split_cleaned(cleaned.strings), *_character_ranges(cleaned)

    def _split_cleaned(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        texts = tf.strings.strip(texts)
        texts = tf.strings.regex_replace(texts, r"\s*\n\s*", f" {_LINE_END} ")
        texts = tf.strings.regex_replace(texts, self._punctuation, r" \0 ")
        chunks = split_at_white_space(texts)
        distinct, indices = tf.unique(chunks.values)
        words = split_at_white_space(_lower(self._split_chunks(distinct)))
        words = words.with_values(tf.where(words.values == _LINE_END, self.line_end, words.values))
        return words, chunks.with_values(indices)


def _character_ranges(cleaned: AlignedTexts) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns starts and ends of the characters of cleaned words: int64 `[characters]` twice."""
    codes = tf.strings.unicode_decode(cleaned.strings, "UTF-8")
    sources = tf.where(_is_in_a_word(codes))[:, 0]
    counts = 1 + tf.cast(tf.gather(codes.values, sources) == ord(_DOTTED_I), tf.int64)
    sources = tf.gather(sources, row_indices(row_splits(counts)))
    return tf.gather(cleaned.starts, sources), tf.gather(cleaned.ends, sources)


def _is_in_a_word(codes: tf.RaggedTensor) -> tf.Tensor:
    """Returns which code points of cleaned texts, int32 `[n, None]`, are in a word: bool `[codes]`.

    They are all that are not white space, and the first line end between two words.
    """
    is_visible = tf.reduce_all(codes.values[:, None] != [*map(ord, _WHITE_SPACE)], axis=1)
    visible = row_splits(tf.cast(is_visible, tf.int64))
    before = visible[:-1]
    row = row_indices(codes.row_splits)
    is_between = (before > tf.gather(tf.gather(visible, codes.row_starts()), row)) & (
        before < tf.gather(tf.gather(visible, codes.row_limits()), row)
    )
    line_end = tf.where(is_between & (codes.values == ord("\n")))
    gap = tf.gather_nd(before, line_end)
    is_first = tf.concat([[True], gap[1:] != gap[:-1]], 0)[: tf.size(gap)]
    return tf.tensor_scatter_nd_update(is_visible, line_end, is_first)


def _lower(texts: tf.Tensor) -> tf.Tensor:
    """Lower-cases texts, string `[n]`, as Python does, in every locale of the process."""
    texts = tf.strings.lower(texts)  # of ASCII alone
    return update_where(~is_ascii(texts), _lower_unicode, texts)


def _lower_unicode(texts: tf.Tensor) -> tf.Tensor:
    # First the letters that Turkish, Azerbaijani or Lithuanian lower-case differently.
    for upper, lower in (("İ", "i̇"), ("Į", "į"), ("Ì", "ì"), ("Í", "í"), ("Ĩ", "ĩ")):
        texts = tf.strings.regex_replace(texts, upper, lower)
    return tf.strings.lower(texts, "utf-8")


class Splitter:
    """Splits chunks into tokens by spaCy 2.0's rules for English, without lower-casing them.

    spaCy takes a prefix and a suffix off a chunk, again and again, until the rest has neither, is
    an exception or is a URL. It then cuts the rest at infixes. Here all chunks take each step
    together. A chunk's tokens are one string, separated by spaces.
    """

    def __init__(self, tables: dict[str, Any]) -> None:
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
        return tf.strings.regex_replace(texts, self._patterns[name], "")

    def _cut_at_infixes(self, texts: tf.Tensor) -> tf.Tensor:
        texts = tf.strings.regex_replace(texts, self._patterns["infix"], r" \0 ")
        for _ in range(2):  # the second time for infixes one character apart, as in a:b:c
            texts = tf.strings.regex_replace(
                texts, self._patterns["infix_between"], r"\1\4\7 \2\5\8 \3\6\9"
            )
        return texts

"""Texts to token ids: normalisation, base symbols, merges, in core TensorFlow ops."""

import numpy as np

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.lookup.code_point_table import CODE_POINTS, CodePointTable
from gpt1_keras.tokenization.lookup.ragged import join_rows, row_numbers
from gpt1_keras.tokenization.lookup.string_table import StringTable
from gpt1_keras.tokenization.merges import Merger
from gpt1_keras.tokenization.normalization.bert import BertNormalizer
from gpt1_keras.tokenization.normalization.original.normalizer import OriginalNormalizer
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN

# Classes without arguments. Their method `split` parts texts, string `[batch]`, into chunks, which
# repeat, and chunks into words. It returns `(chunks, words)`: ragged int32 `[batch, None]`, the
# numbers of each text's chunks, and ragged string `[chunks, None]`, the words of each chunk. Their
# attributes are `name`, and `line_end`, the word for a line's end, or None.
_NORMALIZERS = {cls.name: cls for cls in (BertNormalizer, OriginalNormalizer)}
NORMALIZATIONS = tuple(_NORMALIZERS)


def find_normalizer(name):
    """The class of the normalisation of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in _NORMALIZERS:
        raise ValueError(
            f"normalization={name!r} is unknown; expected one of {sorted(NORMALIZATIONS)}."
        )
    return _NORMALIZERS[name]


class Encoder:
    """Turns texts into token ids.

    Args:
        vocabulary: `Vocabulary`.
        normalization: name of the normalisation, `"bert"` or `"original"`.
    """

    def __init__(self, vocabulary, normalization):
        self._normalizer = find_normalizer(normalization)()
        self._merge = Merger(vocabulary)
        unknown = vocabulary.token_to_id[UNKNOWN]
        inner, final = (np.full(CODE_POINTS, unknown, np.int32) for _ in range(2))
        for token, id in vocabulary.token_to_id.items():
            if len(token) == 1:
                inner[ord(token)] = id
            elif len(token) == 1 + len(END_OF_WORD) and token.endswith(END_OF_WORD):
                final[ord(token[0])] = id
        self._inner = CodePointTable(*CodePointTable.compress(inner))
        self._final = CodePointTable(*CodePointTable.compress(final))
        # Most words of a text are tokens as a whole, and need no merging.
        words = [token for token in vocabulary.tokens if token.endswith(END_OF_WORD)]
        words = [word.removesuffix(END_OF_WORD) for word in words if word != END_OF_WORD]
        ids = self._merge_words(tf.constant(words, tf.string)).to_list()
        whole = {word: ids[0] for word, ids in zip(words, ids) if len(ids) == 1}
        self._whole_words = StringTable(list(whole))
        self._whole_ids = tf.constant([*whole.values(), unknown])

    def __call__(self, texts):
        """Encodes texts.

        Args:
            texts: string `[batch]`, UTF-8. Invalid bytes become U+FFFD.

        Returns:
            `tf.RaggedTensor`, int32 `[batch, None]`.
        """
        chunks, words = self._normalizer.split(texts)
        # Texts repeat their words, so each distinct word is encoded once.
        distinct, which = tf.unique(words.values)
        ids = join_rows(self._encode_words(distinct), words.with_values(which))
        return join_rows(ids, chunks)

    def _encode_words(self, words):
        """Encodes words, string `[words]`, to ragged ids."""
        number = self._whole_words(words)
        is_whole = number >= 0
        ids = tf.gather(self._whole_ids, tf.maximum(number, 0))

        def merge():
            merged = self._merge_words(tf.boolean_mask(words, ~is_whole))
            # The rows of `ids`, each of one id, and behind them those of `merged`.
            rows = tf.concat([tf.RaggedTensor.from_uniform_row_length(ids, 1), merged], 0)
            behind = tf.size(ids) - 1 + tf.cumsum(tf.cast(~is_whole, tf.int32))
            row = tf.where(is_whole, tf.range(tf.size(ids)), behind)
            found = join_rows(rows, tf.RaggedTensor.from_uniform_row_length(row, 1))
            return found.values, found.row_splits

        values, splits = tf.cond(
            tf.reduce_all(is_whole),
            lambda: (ids, tf.range(tf.size(ids, tf.int64) + 1)),
            merge,
        )
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)

    def _merge_words(self, words):
        """Encodes words, string `[words]`, symbol by symbol, to ragged ids."""
        words = tf.strings.unicode_decode(words, "UTF-8")
        letters, numbers = words.values, tf.cast(row_numbers(words.row_splits), tf.int32)
        is_final = tf.concat([numbers[1:] != numbers[:-1], [True]], 0)[: tf.size(numbers)]
        symbols = tf.where(is_final, self._final(letters), self._inner(letters))
        symbols, numbers = self._merge(symbols, numbers)
        return tf.RaggedTensor.from_value_rowids(
            symbols, tf.cast(numbers, tf.int64), nrows=words.nrows(), validate=False
        )

"""Texts to token ids: normalisation, base symbols, merges, in core TensorFlow ops."""

import numpy as np

from gpt1_keras.bpe.bert import BertNormalizer
from gpt1_keras.bpe.merges import Merger
from gpt1_keras.bpe.paged_table import CODE_POINTS, PagedTable
from gpt1_keras.bpe.vocabulary import END_OF_WORD, UNKNOWN
from gpt1_keras.lazy import tensorflow as tf

_NORMALIZERS = {"bert": BertNormalizer}


def find_normalizer(name):
    """The class of the normalisation of that name.

    Raises:
        ValueError: there is none. `original`, which the published weights were trained with, is
            not available yet, and no other is put in its place.
    """
    if name in _NORMALIZERS:
        return _NORMALIZERS[name]
    reason = "is not available yet" if name == "original" else "is unknown"
    raise ValueError(f"normalization={name!r} {reason}; expected one of {sorted(_NORMALIZERS)}.")


class Encoder:
    """Turns texts into token ids.

    Args:
        vocabulary: `Vocabulary`.
        normalization: name of the normalisation, `"bert"`.
    """

    def __init__(self, vocabulary, normalization):
        self._normalize = find_normalizer(normalization)()
        self._merge = Merger(vocabulary)
        unknown = vocabulary.token_to_id[UNKNOWN]
        inner, final = (np.full(CODE_POINTS, unknown, np.int32) for _ in range(2))
        for token, id in vocabulary.token_to_id.items():
            if len(token) == 1:
                inner[ord(token)] = id
            elif len(token) == 1 + len(END_OF_WORD) and token.endswith(END_OF_WORD):
                final[ord(token[0])] = id
        self._inner = PagedTable(*PagedTable.compress(inner))
        self._final = PagedTable(*PagedTable.compress(final))

    def __call__(self, texts):
        """Encodes texts.

        Args:
            texts: string `[batch]`, UTF-8. Invalid bytes become U+FFFD, which `bert` drops.

        Returns:
            `tf.RaggedTensor`, int32 `[batch, None]`.
        """
        code_points = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        letters, starts, rows = self._normalize(
            code_points.values, tf.cast(code_points.value_rowids(), tf.int32)
        )
        starts = tf.where(starts)[:, 0]
        words = tf.RaggedTensor.from_row_starts(letters, starts, validate=False)
        # Texts repeat their words, so each distinct word is merged once.
        distinct, which = tf.unique(tf.strings.unicode_encode(words, "UTF-8"))
        ids = self._encode_words(tf.strings.unicode_decode(distinct, "UTF-8"))
        return tf.RaggedTensor.from_value_rowids(
            tf.gather(ids, which),
            tf.cast(tf.gather(rows, starts), tf.int64),
            nrows=code_points.nrows(),
            validate=False,
        ).merge_dims(1, 2)

    def _encode_words(self, words):
        """Encodes normalised words: ragged int32 `[words, letters]` to ragged ids."""
        letters, numbers = words.values, tf.cast(words.value_rowids(), tf.int32)
        is_final = tf.concat([numbers[1:] != numbers[:-1], [True]], 0)[: tf.size(numbers)]
        symbols = tf.where(is_final, self._final(letters), self._inner(letters))
        symbols, numbers = self._merge(symbols, numbers)
        return tf.RaggedTensor.from_value_rowids(
            symbols, tf.cast(numbers, tf.int64), nrows=words.nrows(), validate=False
        )

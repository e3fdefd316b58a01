"""What normalisation makes of every code point, as one table for LiteRT."""

import functools

import numpy as np
import tensorflow as tf

from gpt1_keras.tokenization.lookup.code_point_table import CODE_POINTS, CodePointTable
from gpt1_keras.tokenization.normalization.bert import BertNormalizer
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN, Vocabulary

# Codes of slots: nothing, a space, and then the letters, first as those that stand alone.
NOTHING, SPACE, FIRST_LETTER = range(3)
MAX_LETTERS = 3  # that a code point becomes
_ORDINARY = ord("a")


class NormalizationTable:
    """Maps code points to codes of letters, and those to the symbols that merging begins with.

    All letters that the vocabulary does not know are one letter, unknown. So a few hundred
    different rows stand for the 1.1 million code points. `BertNormalizer` acts on every code point
    by itself, and so is asked about each. It drops U+0000, which pads a text, and no code point has
    more letters than bytes.

    Attributes:
        first_joined: the code from which on letters join their neighbours to words.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        ids = vocabulary.token_to_id
        alphabet = sorted({token[0] for token in ids if len(token.removesuffix(END_OF_WORD)) == 1})
        letter_of = np.zeros(CODE_POINTS, np.int32)  # 0 for the unknown letter
        letter_of[[ord(letter) for letter in alphabet]] = np.arange(1, len(alphabet) + 1)
        self.first_joined = FIRST_LETTER + len(alphabet) + 1
        self._num_codes = FIRST_LETTER + 2 * (len(alphabet) + 1)
        codes = self._codes(letter_of)
        shape = [self._num_codes] * MAX_LETTERS
        rows, which = np.unique(np.ravel_multi_index(codes, shape), return_inverse=True)
        self._row_of = CodePointTable(*CodePointTable.compress(which))
        self._codes_of = [tf.constant(each, tf.int32) for each in np.unravel_index(rows, shape)]

        inner = [ids.get(letter, ids[UNKNOWN]) for letter in ["", *alphabet]]
        final = [ids.get(letter + END_OF_WORD, ids[UNKNOWN]) for letter in ["", *alphabet]]
        # Symbols are the ids plus one, so that 0 is none.
        symbols = [[0] * FIRST_LETTER + [id + 1 for id in ids * 2] for ids in (inner, final)]
        self._symbols = tf.constant(np.concatenate(symbols), tf.int32)

    def _codes(self, letter_of: np.ndarray) -> np.ndarray:
        """The codes of each code point's letters, int32 `[3, 0x110000]`."""
        letters, ends, counts, separates = _normalized_code_points()
        codes = np.full((MAX_LETTERS, CODE_POINTS), NOTHING, np.int32)
        for index in range(MAX_LETTERS):
            has = counts > index
            of_letters = letter_of[letters[(ends - 1 - counts + index)[has]]]
            codes[index, has] = (
                np.where(separates[has], FIRST_LETTER, self.first_joined) + of_letters
            )
        codes[0, separates & (counts == 0)] = SPACE
        return codes

    def codes(self, code_points: tf.Tensor) -> list[tf.Tensor]:
        """Returns the codes of the letters of code points: three int32 tensors of their shape."""
        row = self._row_of(code_points)
        return [tf.gather(codes, row) for codes in self._codes_of]

    def symbols(self, codes: tf.Tensor, is_final: tf.Tensor) -> tf.Tensor:
        """Returns the symbols of letters, int32, by their codes and whether they end words."""
        return tf.gather(self._symbols, tf.where(is_final, codes + self._num_codes, codes))


@functools.cache  # the same for every vocabulary
def _normalized_code_points() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What `BertNormalizer` makes of each code point between two ordinary letters.

    Returns:
        `(letters, ends, counts, separates)`: int32 `[n]`, the letters of all code points end to
        end, each with those around it; and `[0x110000]` each: the index after a code point's last
        letter, the number of its own letters, and whether it separates those around it.
    """
    code_points = tf.range(CODE_POINTS)
    between = tf.stack([tf.fill([CODE_POINTS], _ORDINARY), code_points] * 2, axis=1)[:, :3]
    letters, starts, rows = (
        tensor.numpy()
        for tensor in BertNormalizer()(tf.reshape(between, [-1]), tf.repeat(code_points, 3))
    )
    ends = np.cumsum(np.bincount(rows, minlength=CODE_POINTS))
    return letters, ends, np.diff(ends, prepend=0) - 2, starts[ends - 1]

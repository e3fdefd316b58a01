"""What normalisation makes of every code point, as one table for LiteRT."""

import numpy as np
import tensorflow as tf

from gpt1_keras.tokenization.lookup.code_point_table import CODE_POINTS, CodePointTable
from gpt1_keras.tokenization.normalization.bert import read_bert_table
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN, Vocabulary

# Codes of slots: nothing, a space, and then the letters, first as those that stand alone.
NOTHING, SPACE, FIRST_LETTER = range(3)
MAX_LETTERS = 3  # that a code point becomes


class NormalizationTable:
    """Maps code points to codes of letters, and those to the symbols that merging begins with.

    All letters that the vocabulary does not know are one letter, unknown. So a few hundred
    different rows stand for the 1.1 million code points. The `bert` table replaces every code
    point by itself. It drops U+0000, which pads a text, and no code point has
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
        self._row_of = CodePointTable(which)
        self._codes_of = [tf.constant(each, tf.int32) for each in np.unravel_index(rows, shape)]

        inner = [ids.get(letter, ids[UNKNOWN]) for letter in ["", *alphabet]]
        final = [ids.get(letter + END_OF_WORD, ids[UNKNOWN]) for letter in ["", *alphabet]]
        # Symbols are the ids plus one, so that 0 is none.
        symbols = [[0] * FIRST_LETTER + [id + 1 for id in ids * 2] for ids in (inner, final)]
        self._symbols = tf.constant(np.concatenate(symbols), tf.int32)

    def _codes(self, letter_of: np.ndarray) -> np.ndarray:
        """The codes of each code point's letters, int32 `[3, 0x110000]`."""
        table = read_bert_table()
        code_of = self.first_joined + letter_of
        for first, last in table.isolated:
            code_of[first : last + 1] -= self.first_joined - FIRST_LETTER
        code_of[ord(" ")] = SPACE
        codes_of = np.full((MAX_LETTERS, len(table.replacements)), NOTHING, np.int32)
        for entry, letters in enumerate(table.replacements):
            codes_of[: len(letters), entry] = [code_of[ord(letter)] for letter in letters]
        codes = codes_of[:, table.entries]
        stays = table.entries == 0
        codes[0, stays] = code_of[stays]
        return codes

    def codes(self, code_points: tf.Tensor) -> list[tf.Tensor]:
        """Returns the codes of the letters of code points: three int32 tensors of their shape."""
        row = self._row_of(code_points)
        return [tf.gather(codes, row) for codes in self._codes_of]

    def symbols(self, codes: tf.Tensor, is_final: tf.Tensor) -> tf.Tensor:
        """Returns the symbols of letters, int32, by their codes and whether they end words."""
        return tf.gather(self._symbols, tf.where(is_final, codes + self._num_codes, codes))

"""The normalisation of every code point, as one table for LiteRT."""

import numpy as np
import tensorflow as tf

from gpt1_keras.tokenization.lookup.code_point_table import CODE_POINTS, CodePointTable
from gpt1_keras.tokenization.normalization.bert import read_bert_table
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN, Vocabulary

# Codes of slots: nothing, a space, the characters that stand alone, the characters that join
# others.
NOTHING, SPACE, FIRST_CHARACTER = range(3)
MAX_CHARACTERS = 3  # the most that a code point becomes


class NormalizationTable:
    """Maps code points to codes of characters, and these to the first symbols for merging.

    All characters that the vocabulary does not know have the same code. So a few hundred different
    rows are enough for the 1.1 million code points. In the `bert` table, each code point is
    replaced independently of its neighbours. The table drops U+0000, which pads a text, and no code
    point becomes more characters than it has bytes.

    Attributes:
        first_joined: the first code of characters that join their neighbours to words.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        ids = vocabulary.token_to_id
        alphabet = sorted({token[0] for token in ids if len(token.removesuffix(END_OF_WORD)) == 1})
        character_of = np.zeros(CODE_POINTS, np.int32)  # 0 for the unknown character
        character_of[[ord(character) for character in alphabet]] = np.arange(1, len(alphabet) + 1)
        self.first_joined = FIRST_CHARACTER + len(alphabet) + 1
        self._num_codes = FIRST_CHARACTER + 2 * (len(alphabet) + 1)
        codes = self._codes(character_of)
        shape = [self._num_codes] * MAX_CHARACTERS
        rows, which = np.unique(np.ravel_multi_index(codes, shape), return_inverse=True)
        self._row_of = CodePointTable(which)
        self._codes_of = [tf.constant(each, tf.int32) for each in np.unravel_index(rows, shape)]

        inner = [ids.get(character, ids[UNKNOWN]) for character in ["", *alphabet]]
        final = [ids.get(character + END_OF_WORD, ids[UNKNOWN]) for character in ["", *alphabet]]
        # Symbols are the ids plus one, so that 0 is none.
        symbols = [[0] * FIRST_CHARACTER + [id + 1 for id in ids * 2] for ids in (inner, final)]
        self._symbols = tf.constant(np.concatenate(symbols), tf.int32)

    def _codes(self, character_of: np.ndarray) -> np.ndarray:
        """Returns the codes of each code point's characters, int32 `[3, 0x110000]`."""
        table = read_bert_table()
        code_of = self.first_joined + character_of
        for first, last in table.isolated:
            code_of[first : last + 1] -= self.first_joined - FIRST_CHARACTER
        code_of[ord(" ")] = SPACE
        codes_of = np.full((MAX_CHARACTERS, len(table.replacements)), NOTHING, np.int32)
        for entry, characters in enumerate(table.replacements):
            codes_of[: len(characters), entry] = [
                code_of[ord(character)] for character in characters
            ]
        codes = codes_of[:, table.entries]
        stays = table.entries == 0
        codes[0, stays] = code_of[stays]
        return codes

    def codes(self, code_points: tf.Tensor) -> list[tf.Tensor]:
        """Returns the codes of code points' characters: three int32 tensors of their shape."""
        row = self._row_of(code_points)
        return [tf.gather(codes, row) for codes in self._codes_of]

    def symbols(self, codes: tf.Tensor, is_final: tf.Tensor) -> tf.Tensor:
        """Returns the symbols of characters, int32, from their codes and whether they end words."""
        return tf.gather(self._symbols, tf.where(is_final, codes + self._num_codes, codes))

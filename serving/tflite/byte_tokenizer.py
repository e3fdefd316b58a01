"""Turns UTF-8 bytes into token ids with LiteRT's built-in ops, on tensors of fixed shapes.

The ids are the same as those of `GPT1Tokenizer`. Its tensors grow and shrink with the text; here
each byte has a slot, and the slots in use move to the front. A code point becomes at most as many
characters as it has bytes, so they fit into its slots.
"""

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from gpt1_keras.tokenization.lookup import ABSENT, CODE_POINTS, CodePointTable, PairTable
from gpt1_keras.tokenization.normalization.bert import BertNormalizer, read_bert_table
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN, Vocabulary

# Codes of slots: nothing, a space, the characters that stand alone, the characters that join
# others.
NOTHING, SPACE, FIRST_CHARACTER = range(3)
MAX_CHARACTERS = 3  # the most that a code point becomes

FEWEST = 64  # slots of the smallest graph
_LARGEST = 2**31 - 1
# For sequences of two, three and four bytes: the first byte's base, and the range of code points.
_SEQUENCES = [(0xC0, 0x80, 0x7FF), (0xE0, 0x800, 0xFFFF), (0xF0, 0x10000, 0x10FFFF)]


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


TokenizedTexts: TypeAlias = tuple[tf.Tensor, tf.Tensor, tf.Tensor]  # ids, starts, lengths


class ByteTokenizer:
    """Tokenizes a fixed number of texts, each of a fixed number of bytes.

    Args:
        tokenizer: a tokenizer with `normalization="bert"`.
        max_bytes: the most bytes of each text.

    Raises:
        ValueError: the normalisation is not `bert`, or there are more bytes than an int32 can
            number beside the ranks of merges.
    """

    def __init__(self, tokenizer: GPT1Tokenizer, max_bytes: Sequence[int]) -> None:
        vocabulary = tokenizer.vocabulary
        self._slots = sum(max_bytes) + len(max_bytes)
        most = _LARGEST // max(1, len(vocabulary.merges))
        if min(max_bytes) < 1 or self._slots > most:
            raise ValueError(
                f"With {len(vocabulary.merges)} merges, texts may have at least 1 byte each, and "
                f"in all at most {most - len(max_bytes)}. Received: max_bytes={list(max_bytes)}."
            )
        if tokenizer.normalization != BertNormalizer.name:
            raise ValueError(
                f"normalization={tokenizer.normalization!r} cannot run on a device: what it makes "
                "of a code point depends on its neighbours, for which LiteRT has no built-in "
                f"ops. Expected {BertNormalizer.name!r}."
            )
        self._characters = NormalizationTable(vocabulary)
        symbols = np.stack([vocabulary.left, vocabulary.right], -1) + 1
        pairs, ranks = np.unique(symbols, axis=0, return_index=True)
        self._rank = PairTable(pairs[:, 0], pairs[:, 1], ranks)
        self._product = tf.constant(np.append(vocabulary.product + 1, 0), tf.int32)

    def __call__(self, texts: Sequence[tf.Tensor]) -> TokenizedTexts:
        """Tokenizes texts.

        Args:
            texts: int32 `[max_bytes]` each, UTF-8 padded with zeros, which are ignored. Bytes may
                be signed, from -128 to 127, or unsigned.

        Returns:
            `(ids, starts, lengths)`: int32 `[slots]`, the ids of all texts end to end, then
            undefined ids; int32 `[texts]`, the index of each text's first id; and int32 `[texts]`,
            its number of ids.
        """
        space, used = tf.constant([ord(" ")]), [_used(text) for text in texts]
        # A space after each text keeps its words from joining those of the next.
        bytes = tf.concat([part for text in texts for part in (text, space)], axis=0) % 256
        kept = [
            part
            for text, count in zip(texts, used)
            for part in (tf.range(text.shape[0]) < count, [True])
        ]
        [bytes] = _to_front(tf.concat(kept, axis=0), bytes)
        ends = tf.cumsum(tf.stack(used) + 1) - 1  # the index of that space

        def tokenize(slots: int) -> TokenizedTexts:
            ids, starts, lengths = self._tokenize(bytes[:slots], ends)
            return tf.pad(ids, [[0, self._slots - slots]]), starts, lengths

        return _in_fewest(tokenize, ends[-1] + 1, self._slots)

    def _tokenize(self, bytes: tf.Tensor, ends: tf.Tensor) -> TokenizedTexts:
        """Like `__call__`, for texts end to end.

        Args:
            bytes: int32 `[slots]`, from 0 to 255.
            ends: int32 `[texts]`, the index of the space after each text.
        """
        first, second, third = self._characters.codes(code_points(bytes))
        codes = first + _move(second, 1) + _move(third, 2)
        in_use = codes > 0
        [characters] = _to_front(in_use, codes)
        is_character = characters >= FIRST_CHARACTER
        joined = characters >= self._characters.first_joined
        is_final = is_character & ~(joined & _move(joined, -1))
        words = tf.cumsum(tf.cast(is_final, tf.int32), exclusive=True)
        # The space after each text shows where the text ends, after the move to the front.
        indices = tf.cumsum(tf.cast(in_use, tf.int32), exclusive=True)
        words_before = tf.gather(words, tf.gather(indices, ends))

        symbols = self._characters.symbols(characters, is_final)
        symbols, words = self._merge(symbols, words)
        in_use = symbols > 0
        ends = tf.reduce_sum(
            tf.cast(in_use & (words < words_before[:, tf.newaxis]), tf.int32), axis=1
        )
        [ids] = _to_front(in_use, symbols)
        starts = _move(ends, 1)
        return tf.maximum(ids - 1, 0), starts, ends - starts

    def _merge(self, symbols: tf.Tensor, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges like `gpt1_keras.tokenization.merges.Merger`: in each round, one pair of each
        word.

        This is the leftmost pair of the word's lowest rank.

        Args:
            symbols: int32 `[slots]`, the base symbols, 0 for none.
            words: int32 `[slots]`, the index of each symbol's word, ascending.

        Returns:
            `(symbols, words)` as above, merged.
        """
        [slots] = symbols.shape
        index = tf.range(slots)

        def merge_once(
            symbols: tf.Tensor, words: tf.Tensor, rank: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            # Rank and index in one number: a word's smallest number is its leftmost pair of lowest
            # rank.
            order = tf.where(rank == ABSENT, _LARGEST, rank * slots + index)
            best = tf.math.unsorted_segment_min(order, words, slots)
            hit = (rank != ABSENT) & (order == tf.gather(best, words))
            product = tf.gather(self._product, tf.where(hit, rank, 0))
            symbols = tf.where(hit, product, symbols)
            symbols, words = _to_front(~_move(hit, 1), symbols, words)
            return symbols, words, self._ranks(symbols)

        return tf.while_loop(
            lambda symbols, words, rank: tf.reduce_any(rank != ABSENT),
            merge_once,
            [symbols, words, self._ranks(symbols)],
        )[:2]

    def _ranks(self, symbols: tf.Tensor) -> tf.Tensor:
        """Returns the rank of each symbol's merge with the next one, int32 `[slots]`."""
        return self._rank(symbols, _move(symbols, -1))


def _used(text: tf.Tensor) -> tf.Tensor:
    """Returns the number of bytes up to the last that is not zero, int32 scalar."""
    return tf.reduce_max(tf.where(text != 0, tf.range(1, text.shape[0] + 1), 0))


def _in_fewest(
    tokenize: Callable[[int], TokenizedTexts], needed: tf.Tensor, slots: int
) -> TokenizedTexts:
    """Calls `tokenize` with the smallest of a few numbers of slots that is enough."""
    numbers = [slots]
    while numbers[0] >= 2 * FEWEST:
        numbers.insert(0, numbers[0] // 2)
    result = functools.partial(tokenize, slots)
    for fewer in reversed(numbers[:-1]):
        result = functools.partial(
            tf.cond, needed <= fewer, functools.partial(tokenize, fewer), result
        )
    return result()


def _to_front(kept: tf.Tensor, *columns: tf.Tensor) -> list[tf.Tensor]:
    """Moves what is kept to the front; zeros follow. All are `[slots]`."""
    indices = tf.cumsum(tf.cast(kept, tf.int32), exclusive=True)[:, tf.newaxis]
    # What is not kept adds zero at some index.
    return [tf.scatter_nd(indices, tf.where(kept, column, 0), column.shape) for column in columns]


def code_points(bytes: tf.Tensor) -> tf.Tensor:
    """Decodes UTF-8.

    Args:
        bytes: int32 `[n]`, from 0 to 255.

    Returns:
        int32 `[n]`: the code point at the first byte of each well-formed sequence; 0 elsewhere. A
        decoder that replaces malformed bytes finds the same sequences, as none begins inside
        another.
    """
    tails = [_move(bytes, -offset) - 0x80 for offset in (1, 2, 3)]
    is_tail = [(tail >= 0) & (tail < 0x40) for tail in tails]
    decoded, well_formed = bytes, bytes < 0x80
    result = tf.where(well_formed, decoded, 0)
    follows = tf.ones_like(well_formed)
    for length, (lead, first, last) in enumerate(_SEQUENCES, 2):
        follows &= is_tail[length - 2]
        decoded = bytes - lead
        for tail in tails[: length - 1]:
            decoded = decoded * 0x40 + tail
        well_formed = follows & (decoded >= first) & (decoded <= last) & (bytes >= lead)
        result = tf.where(well_formed, decoded, result)
    return result


def _move(column: tf.Tensor, by: int) -> tf.Tensor:
    """Moves a column, `[n]`, to the right, or left if negative; zeros fill the gap."""
    # tf.slice, as LiteRT's kernel for strided slices is slow.
    [size] = column.shape
    kept = max(size - abs(by), 0)
    gap = tf.zeros([size - kept], column.dtype)
    if by > 0:
        return tf.concat([gap, tf.slice(column, [0], [kept])], 0)
    return tf.concat([tf.slice(column, [size - kept], [kept]), gap], 0)

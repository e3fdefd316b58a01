"""The input transformations of section 3.3 with LiteRT's built-in ops, on tensors of fixed shapes.

A sequence is made of pieces end to end: texts from `ByteTokenizer`, special tokens and padding. All
are slices of one vector, so one gather makes a sequence. The results are the same as those of
`gpt1_keras.tokenization.input_transformations`.
"""

from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

from gpt1_keras.tokenization.input_transformations import (
    kept_lengths,
    kept_slices,
    second_limit,
)
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from serving.tflite.byte_tokenizer import TokenizedTexts

# A slice of the vector: where it starts, and its length; ints or int32 scalars.
_Piece: TypeAlias = tuple[int | tf.Tensor, int | tf.Tensor]


class Framer:
    """Frames texts.

    Args:
        sequence_length: the most tokens of a sequence.
        truncate: how two texts that are too long together are truncated; see `kept_lengths`.
        tail: the share of its end in what is kept of a text that is too long.
    """

    def __init__(
        self, tokenizer: GPT1Tokenizer, sequence_length: int, truncate: str, tail: float
    ) -> None:
        self._length, self._truncate, self._tail = sequence_length, truncate, tail
        self._special_ids = [
            tokenizer.start_token_id,
            tokenizer.delimiter_token_id,
            tokenizer.extract_token_id,
        ]
        self._pad_id = tokenizer.pad_token_id

    def frame(
        self, tokens: TokenizedTexts, order: Sequence[int]
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Frames texts: `[start] first [delimiter] second ... [extract]`.

        Args:
            tokens: the result of `ByteTokenizer`.
            order: the indices of the texts to frame.

        Returns:
            `(token_ids, num_tokens, truncated)`: int32 `[sequence_length]`, int32 scalar, and bool
            scalar, whether a text was cut.

        Raises:
            ValueError: a sequence length that leaves no room for text.
        """
        ids, starts, lengths = tokens
        starts, lengths = ([each[text] for text in order] for each in (starts, lengths))
        kept = kept_lengths(lengths, self._length, self._truncate, tf.minimum, tf.maximum)
        start, delimiter, extract = self._special_pieces(ids)
        pieces = [start]
        for text in zip(starts, lengths, kept):
            pieces += [*kept_slices(*text, self._tail), delimiter]
        pieces[-1] = extract
        token_ids, _, ends = self._join(ids, pieces, self._length)
        return token_ids, ends[-1], tf.reduce_any(tf.stack(kept) < tf.stack(lengths))

    def frame_windows(
        self, tokens: TokenizedTexts, windows: int
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Frames the only text as windows.

        Returns:
            `(token_ids, window_tokens, truncated)`: int32 `[windows, sequence_length]`; int32
            `[windows]`, the number of tokens of each window, 0 for an absent one; and as `frame`.

        Raises:
            ValueError: a sequence length that leaves no room for text.
        """
        ids, starts, lengths = tokens
        start, length = starts[0], lengths[0]
        [room] = kept_lengths([self._length], self._length)
        count = tf.clip_by_value((length + room - 1) // room, 1, windows)
        start_piece, _, extract_piece = self._special_pieces(ids)
        framed = []
        for number in range(windows):
            first, end = (each * length // count for each in (number, number + 1))
            is_present = tf.cast(number < count, tf.int32)
            share = (end - first) * is_present
            kept = kept_slices(start + first, share, tf.minimum(share, room), self._tail)
            pieces = [(start_piece[0], is_present), *kept, (extract_piece[0], is_present)]
            token_ids, _, ends = self._join(ids, pieces, self._length)
            framed.append((token_ids, ends[-1]))
        token_ids, window_tokens = map(tf.stack, zip(*framed))
        return token_ids, window_tokens, length > windows * room

    def frame_choices(
        self, tokens: TokenizedTexts, is_present: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        """Frames the choices of one example as branches after a shared prefix.

        Args:
            tokens: what `ByteTokenizer` returns for a context, perhaps a question, and the choices.
            is_present: bool `[choices]`. An absent choice has no branch.

        Returns:
            `(inputs, num_tokens, truncated)`: a dict of int32 `token_ids`, `positions` and
            `branches`, `[length_with_branches]`, and of `extract_indices`, `[choices]`, -1 for an
            absent one; and as `frame`.

        Raises:
            ValueError: a sequence length that leaves no room for text.
        """
        ids, starts, lengths = tokens
        [choices] = is_present.shape
        first_choice = lengths.shape[0] - choices
        prefix = tf.reduce_sum(lengths[:first_choice])
        limit = second_limit(prefix, self._length, self._truncate, tf.maximum)
        kept_choices = tf.minimum(lengths[first_choice:], limit)
        room = self._length - 3 - tf.reduce_max(kept_choices)
        kept: list[tf.Tensor] = []
        for text in reversed(range(first_choice)):  # what the question leaves is the context's
            kept.insert(0, tf.minimum(lengths[text], room))
            room -= kept[0]
        kept = tf.concat([tf.stack(kept), kept_choices], axis=0)

        start, delimiter, extract = self._special_pieces(ids)
        slices = [
            kept_slices(starts[text], lengths[text], kept[text], self._tail)
            for text in range(first_choice + choices)
        ]
        pieces = sum(slices[:first_choice], [start])
        branches = [0] * len(pieces)
        last_of_branches = []  # the index of each one's last piece
        for choice, one in enumerate(tf.unstack(tf.cast(is_present, tf.int32))):
            branch = [(delimiter[0], one), *slices[first_choice + choice], (extract[0], one)]
            branches += [choice + 1] * len(branch)
            pieces += branch
            last_of_branches.append(len(pieces) - 1)
        token_ids, piece, ends = self._join(ids, pieces, self.length_with_branches(choices))
        ends_of_choices = tf.gather(ends, last_of_branches)
        end_of_prefix = ends[branches.index(1) - 1]
        branches = tf.gather(tf.constant([*branches, -1]), piece)
        # How far each branch lies after the end of the shared prefix, where its positions go on.
        shifts = tf.concat([[0, 0], ends_of_choices[:-1] - end_of_prefix], axis=0)
        positions = tf.range(token_ids.shape[0]) - tf.gather(shifts, tf.maximum(branches, 0))
        inputs = {
            "token_ids": token_ids,
            "positions": tf.where(branches >= 0, positions, 0),
            "branches": branches,
            "extract_indices": tf.where(is_present, ends_of_choices - 1, -1),
        }
        return inputs, ends[-1], tf.reduce_any(kept < lengths)

    def length_with_branches(self, choices: int) -> int:
        """Returns the most tokens that a shared prefix and the branches of `choices` have."""
        limit = second_limit(0, self._length, self._truncate)
        return self._length - 2 - limit + choices * (limit + 2)

    def _special_pieces(self, ids: tf.Tensor) -> list[_Piece]:
        """Returns the pieces of the start, delimiter and extract tokens, after the texts' ids."""
        return [(ids.shape[0] + index, 1) for index in range(len(self._special_ids))]

    def _join(
        self, ids: tf.Tensor, pieces: Sequence[_Piece], length: int
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Lays pieces end to end, and padding after them.

        Returns:
            `(token_ids, piece, ends)`: int32 `[length]`, the tokens; int32 `[length]`, the index of
            each one's piece; and int32 `[pieces]`, the index after each piece.
        """
        source = tf.concat([ids, self._special_ids, tf.fill([length], self._pad_id)], axis=0)
        pieces = [*pieces, (source.shape[0] - length, length)]
        starts, counts = (tf.stack(column) for column in zip(*pieces))
        ends = tf.cumsum(counts)
        index = tf.range(length)
        piece = tf.reduce_sum(tf.cast(index[:, tf.newaxis] >= ends, tf.int32), axis=1)
        token_ids = tf.gather(source, index + tf.gather(starts - ends + counts, piece))
        return token_ids, piece, ends[:-1]

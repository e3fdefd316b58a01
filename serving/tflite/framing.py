"""`gpt1_keras.tokenization.input_transformations`'s framing in LiteRT's built-in ops, on tensors of fixed size.

A sequence is pieces laid one behind the other: texts, which `ByteTokenizer` found, special tokens
and padding. All are stretches of one vector, so a sequence is one gather.
"""

import tensorflow as tf

from gpt1_keras.tokenization.input_transformations import segment_limit


class Framer:
    """Frames texts.

    Args:
        tokenizer: `GPT1Tokenizer`, for the special ids.
        sequence_length: int, the most tokens of a sequence.
    """

    def __init__(self, tokenizer, sequence_length):
        self._length = sequence_length
        self._special_ids = [
            tokenizer.start_token_id,
            tokenizer.delimiter_token_id,
            tokenizer.extract_token_id,
        ]
        self._pad_id = tokenizer.pad_token_id

    def frame(self, tokens, order):
        """As `transforms.frame`: `[start] first [delimiter] second ... [extract]`.

        Args:
            tokens: what `ByteTokenizer` gives.
            order: tuple of int, the texts to frame, by their numbers.

        Raises:
            ValueError: a sequence length that leaves no room for text.

        Returns:
            `(token_ids, num_tokens, truncated)`: int32 `[sequence_length]`, int32 scalar, and bool
            scalar, whether a text was cut.
        """
        ids, starts, lengths = tokens
        limit = segment_limit(len(order), self._length)
        start, delimiter, extract = self._special_pieces(ids)
        pieces = [start]
        for text in order:
            pieces += [(starts[text], tf.minimum(lengths[text], limit)), delimiter]
        pieces[-1] = extract
        token_ids, _, ends = self._join(ids, pieces, self._length)
        truncated = tf.reduce_any(tf.stack([lengths[text] > limit for text in order]))
        return token_ids, ends[-1], truncated

    def frame_choices(self, tokens, is_there):
        """As `transforms.frame_choices` and `pad_choices`, of one example.

        Args:
            tokens: what `ByteTokenizer` gives, of a context, perhaps a question, and the choices.
            is_there: bool `[choices]`. A choice that is not there has no place.

        Raises:
            ValueError: a sequence length that leaves no room for text.

        Returns:
            `(tree, num_tokens, truncated)`: a dict of int32 `token_ids`, `positions` and
            `branches`, `[tree_length]`, and of `extract_indices`, `[choices]`; and as `frame`.
        """
        ids, starts, lengths = tokens
        [choices] = is_there.shape
        first_choice = lengths.shape[0] - choices
        answers = tf.minimum(lengths[first_choice:], segment_limit(2, self._length))
        room = self._length - 3 - tf.reduce_max(answers)
        kept = []
        for text in reversed(range(first_choice)):  # what the question leaves is the context's
            kept.insert(0, tf.minimum(lengths[text], room))
            room -= kept[0]
        kept = tf.concat([tf.stack(kept), answers], axis=0)

        start, delimiter, extract = self._special_pieces(ids)
        pieces = [start, *((starts[text], kept[text]) for text in range(first_choice))]
        branches = [0] * len(pieces)
        for choice, one in enumerate(tf.unstack(tf.cast(is_there, tf.int32))):
            text = first_choice + choice
            pieces += [(delimiter[0], one), (starts[text], kept[text]), (extract[0], one)]
            branches += [choice + 1] * 3
        token_ids, piece, ends = self._join(ids, pieces, self.tree_length(choices))
        ends_of_choices = ends[first_choice + 3 :: 3]
        branches = tf.gather(tf.constant([*branches, -1]), piece)
        # How far each branch stands behind the end of the beginning, where its positions go on.
        shifts = tf.concat([[0, 0], ends_of_choices[:-1] - ends[first_choice]], axis=0)
        positions = tf.range(token_ids.shape[0]) - tf.gather(shifts, tf.maximum(branches, 0))
        tree = {
            "token_ids": token_ids,
            "positions": tf.where(branches >= 0, positions, 0),
            "branches": branches,
            "extract_indices": tf.where(is_there, ends_of_choices - 1, -1),
        }
        return tree, ends[-1], tf.reduce_any(kept < lengths)

    def tree_length(self, choices):
        """The most tokens that a beginning has with so many choices behind it, int."""
        limit = segment_limit(2, self._length)
        return self._length - 2 - limit + choices * (limit + 2)

    def _special_pieces(self, ids):
        """The pieces of the start, delimiter and extract tokens, behind the texts' ids."""
        return [(ids.shape[0] + place, 1) for place in range(len(self._special_ids))]

    def _join(self, ids, pieces, length):
        """Lays pieces one behind the other, and padding behind them.

        Returns:
            `(token_ids, piece, ends)`: int32 `[length]`, the tokens; int32 `[length]`, the number
            of each one's piece; and int32 `[pieces]`, the place behind each.
        """
        source = tf.concat([ids, self._special_ids, tf.fill([length], self._pad_id)], axis=0)
        pieces = [*pieces, (source.shape[0] - length, length)]
        starts, counts = (tf.stack(column) for column in zip(*pieces))
        ends = tf.cumsum(counts)
        place = tf.range(length)
        piece = tf.reduce_sum(tf.cast(place[:, tf.newaxis] >= ends, tf.int32), axis=1)
        token_ids = tf.gather(source, place + tf.gather(starts - ends + counts, piece))
        return token_ids, piece, ends[:-1]

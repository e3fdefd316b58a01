"""Finds the words of a batch's texts: their bytes, and the model's tokens that they are of."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN

State = Sequence[tf.Tensor]


def run_in_chunks(
    compute: Callable[[tf.Tensor, State], State],
    state: State,
    lengths: tf.Tensor,
    max_tokens: int,
) -> State:
    """Calls a function for one chunk of runs after the other.

    Args:
        compute: from the indices of a chunk's runs, int32 `[runs]`, and the state, to the next
            state, tensors of the same shapes.
        state: the first state.
        lengths: int32 `[runs]`, the number of tokens that each run reads, descending.
        max_tokens: the most tokens of a chunk, padding included. A longer run is a chunk of its
            own.

    Returns:
        The last state.
    """
    count = tf.size(lengths)

    def step(first: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        size = tf.maximum(max_tokens // tf.maximum(lengths[first], 1), 1)
        runs = tf.range(first, tf.minimum(first + size, count))
        return first + tf.size(runs), compute(runs, state)

    return tf.while_loop(
        lambda first, _: first < count, step, (0, list(state)), parallel_iterations=1
    )[1]


@dataclasses.dataclass(frozen=True)
class Words:
    """All words of all texts, field after field. They are numbered from 1.

    Attributes:
        numbers: a ragged tensor for each field, int32 of the shape of its segment: the number of
            each token's word.
        examples: int32 `[words]`, the index of each word's example.
        fields: int32 `[words]`, the index of each word's field.
        choices: int32 `[words]`, the index of each word's choice; -1 in other fields.
        texts: string `[words]`, as they stand in the original text.
        starts, ends: int32 `[words]`, their byte offsets there.
    """

    numbers: list[tf.RaggedTensor]
    examples: tf.Tensor
    fields: tf.Tensor
    choices: tf.Tensor
    texts: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor

    @property
    def count(self) -> tf.Tensor:
        """The number of words, int32 scalar."""
        return tf.size(self.examples)


class WordFinder:
    """Finds the words of tokenized texts: a word ends with a token that has the end-of-word mark.

    `<unk>` has no such mark: a word ends after it if the next token's bytes do not follow directly.
    So several words that are each one unknown character, such as Chinese ones, may be found as one.
    """

    def __init__(self, tokenizer: GPT1Tokenizer) -> None:
        tokens = tokenizer.get_vocabulary()
        self._is_final = tf.constant([token.endswith(END_OF_WORD) for token in tokens])
        self._unknown = tokenizer.token_to_id(UNKNOWN)

    def find(
        self,
        texts: Sequence[Any],
        segments: Sequence[tf.RaggedTensor],
        starts: Sequence[tf.RaggedTensor],
        ends: Sequence[tf.RaggedTensor],
    ) -> Words:
        """Finds the words of a batch.

        Args:
            texts: a tensor for each field, string `[batch]`; for choices ragged, `[batch, None]`.
            segments: their tokens' ids, int32 `[batch, None]`, or `[batch, None, None]`.
            starts, ends: the tokens' byte offsets in their texts, of the shapes of `segments`.
        """
        found, numbers, count = [], [], tf.constant(0)
        for field, each in enumerate(zip(texts, segments, starts, ends)):
            columns, of_tokens = self._of_field(*each)
            columns["fields"] = tf.fill(tf.shape(columns["examples"]), field)
            numbers.append(each[1].with_flat_values(count + of_tokens))
            count += tf.size(columns["examples"])
            found.append(columns)
        joined = {name: tf.concat([each[name] for each in found], axis=0) for name in found[0]}
        return Words(numbers, **joined)

    def _of_field(
        self, texts: Any, segment: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns a field's words, as `Words` has them, and each token's word, counted from 1."""
        if isinstance(texts, tf.RaggedTensor):
            example = tf.cast(texts.value_rowids(), tf.int32)
            choice = tf.range(tf.size(texts.values)) - tf.cast(
                tf.gather(texts.row_starts(), example), tf.int32
            )
            texts, segment = texts.values, segment.values
        else:
            example = tf.range(tf.size(texts))
            choice = tf.fill(tf.shape(example), -1)
        row = tf.cast(segment.value_rowids(), tf.int32)
        start, end = starts.flat_values, ends.flat_values
        # Whether the second of two neighbouring tokens begins a word.
        is_new = row[1:] != row[:-1]
        is_new |= tf.gather(self._is_final, segment.values[:-1])
        is_new |= (segment.values[:-1] == self._unknown) & (start[1:] > end[:-1])
        is_first = tf.concat([[True], is_new], axis=0)[: tf.size(row)]
        number = tf.cumsum(tf.cast(is_first, tf.int32))
        first = tf.where(is_first)[:, 0]
        row, start = tf.gather(row, first), tf.gather(start, first)
        end = tf.math.unsorted_segment_max(end, number - 1, tf.size(row))
        columns: Mapping[str, tf.Tensor] = {
            "examples": tf.gather(example, row),
            "choices": tf.gather(choice, row),
            "texts": tf.strings.substr(tf.gather(texts, row), start, end - start),
            "starts": start,
            "ends": end,
        }
        return dict(columns), number

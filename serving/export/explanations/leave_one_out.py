"""Leave-one-out: computes how the answer changes without each word."""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from serving.export.explanations.explained_words import State, Words, run_in_chunks

_MAX_TOKENS = 2048  # without gradients, these take less memory than the weights


def explained_without_each(
    frame: Callable[[Sequence[tf.RaggedTensor]], Mapping[str, tf.Tensor]],
    explained: Callable[[Mapping[str, tf.Tensor], tf.Tensor], tf.Tensor],
    segments: Sequence[tf.RaggedTensor],
    words: Words,
    left_out: tf.Tensor,
    lengths: tf.Tensor,
    answer: tf.Tensor,
) -> tf.Tensor:
    """Returns the explained number without each of some words.

    All other words keep their tokens. If a text was truncated, some of its cut tokens move up.

    Args:
        frame: from segments, ragged token ids by field, to the model's inputs.
        explained: from the model's inputs and the index of each example's answer, int32 `[batch]`,
            to the number that is explained, float `[batch]`.
        segments: each field's token ids, int32 `[batch, None]`, or `[batch, None, None]`.
        words: the segments' words.
        left_out: int32 `[n]`, the indices of the words to leave out.
        lengths: int32 `[batch]`, the number of tokens that the model reads of each example.
        answer: int32 `[batch]`, as `explained` takes it.

    Returns:
        float32 `[n]`.
    """
    of_words = tf.gather(lengths, tf.gather(words.examples, left_out))
    order = tf.argsort(of_words, direction="DESCENDING", stable=True)
    sorted_words = tf.gather(left_out, order)

    def compute(runs: tf.Tensor, state: State) -> State:
        word = tf.gather(sorted_words, runs)
        example = tf.gather(words.examples, word)
        kept = [
            _without(tf.gather(segment, example), tf.gather(numbers, example), 1 + word)
            for segment, numbers in zip(segments, words.numbers)
        ]
        values = explained(frame(kept), tf.gather(answer, example))
        where = tf.gather(order, runs)[:, tf.newaxis]
        return [tf.tensor_scatter_nd_update(state[0], where, values)]

    [values] = run_in_chunks(
        compute, [tf.zeros(tf.shape(left_out))], tf.gather(of_words, order), _MAX_TOKENS
    )
    return values


def _without(
    segment: tf.RaggedTensor, numbers: tf.RaggedTensor, left_out: tf.Tensor
) -> tf.RaggedTensor:
    """Returns each row's tokens without those of one word, given by number, int32 `[rows]`."""
    row, values = segment.value_rowids(), segment.values
    while isinstance(values, tf.RaggedTensor):
        row, values = tf.gather(row, values.value_rowids()), values.values
    is_kept = numbers.flat_values != tf.gather(left_out, row)
    return tf.ragged.boolean_mask(segment, segment.with_flat_values(is_kept))

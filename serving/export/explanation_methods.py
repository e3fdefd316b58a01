"""Computes words' shares in an answer: by integrated gradients, or by leaving words out."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from gpt1_keras.tasks.task import Task

# Of a chunk of runs with gradients: one sequence of the paper's context. Larger chunks take more
# memory, and are hardly faster.
_MAX_TOKENS_OF_GRADIENTS = 512
# Without gradients, these take less memory than the weights.
_MAX_TOKENS_LEFT_OUT = 2048

State: TypeAlias = Sequence[tf.Tensor]
# From the model's outputs and the index of each example's answer, int32 `[batch]`, to the number
# that is explained, float `[batch]`.
Explained: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


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


class IntegratedGradients:
    """Integrated gradients over the token embeddings (Sundararajan et al., 2017, equation 1).

    The baseline replaces the token embeddings of all words by zeros, as that paper does for text.
    Position embeddings and special tokens stay. A word's share is the integral of the gradient
    along its tokens' embeddings, on the straight line from the baseline to the text. Gauss-Legendre
    quadrature computes it.

    Args:
        model: a task with a preprocessor and a `GPT1Backbone` of float layers, whose
            `predict_outputs` takes `states_at`.
        explained: from the model's outputs and the index of each example's answer, int32 `[batch]`,
            to the number that is explained, float `[batch]`.
        steps: number of points of the quadrature.
    """

    def __init__(self, model: Task, explained: Explained, steps: int) -> None:
        self._model, self._explained = model, explained
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        # From [-1, 1] to [0, 1]. The first scale is the baseline, with weight 0: only its value is
        # needed.
        self._scales = tf.constant([0.0, *(nodes + 1.0) / 2.0], tf.float32)
        self._weights = tf.constant([0.0, *weights / 2.0], tf.float32)

    def shares(
        self,
        inputs: Mapping[str, tf.Tensor],
        numbers: tf.Tensor,
        num_words: tf.Tensor,
        lengths: tf.Tensor,
        answer: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns each word's share.

        Args:
            inputs: the model's.
            numbers: int32 of the shape of `inputs["token_ids"]`: the number of each token's word,
                from 1; 0 for special tokens and padding.
            num_words: int32 scalar.
            lengths: int32 `[batch]`, the number of tokens that the model reads of each example.
            answer: int32 `[batch]`, as `explained` takes it.

        Returns:
            `(shares, at_baseline)`: float32 `[words]`; and float32 `[batch]`, the explained number
            at the baseline.
        """
        steps = tf.size(self._scales)
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)

        def compute(runs: tf.Tensor, state: State) -> State:
            shares, at_baseline = state
            example, step = tf.gather(order, runs // steps), runs % steps
            values, gradients = self._run(
                {name: tf.gather(tensor, example) for name, tensor in inputs.items()},
                tf.gather(self._scales, step),
                tf.gather(answer, example),
            )
            words = tf.gather(numbers, example)[..., : tf.shape(gradients)[-1]]
            weights = tf.gather(self._weights, step)
            gradients *= tf.reshape(weights, [-1] + [1] * (numbers.shape.rank - 1))
            values = tf.where(step == 0, values, 0.0)
            return [
                shares + tf.math.unsorted_segment_sum(gradients, words, num_words + 1),
                tf.tensor_scatter_nd_add(at_baseline, example[:, tf.newaxis], values),
            ]

        shares, at_baseline = run_in_chunks(
            compute,
            [tf.zeros([num_words + 1]), tf.zeros(tf.shape(answer))],
            tf.repeat(tf.gather(lengths, order), steps),
            _MAX_TOKENS_OF_GRADIENTS,
        )
        return shares[1:], at_baseline

    def _run(
        self, inputs: dict[str, tf.Tensor], scales: tf.Tensor, answer: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs the model on scaled embeddings; those of special tokens are not scaled.

        Args:
            inputs: the model's.
            scales: float32 `[batch]`.
            answer: int32 `[batch]`.

        Returns:
            `(values, gradients)`: float32 `[batch]`, the explained number; and float32 of the shape
            of the token ids, without padding that all share: the derivative by each token's scale,
            which is the gradient by the embedding times the embedding.
        """
        inputs = self._model.preprocessor.trim(inputs)
        backbone, tokenizer = self._model.backbone, self._model.preprocessor.tokenizer
        of_tokens = []

        def states_at(
            token_ids: tf.Tensor,
            indices: tf.Tensor,
            positions: tf.Tensor | None = None,
            branches: tf.Tensor | None = None,
        ) -> tf.Tensor:
            x = backbone.embedding.tokens(token_ids)
            # An example may be several sequences, such as a pair in both orders: first come all
            # examples in one order, then all in the other.
            sequences = tf.shape(token_ids)[0] // tf.size(scales)
            rows = tf.cast(tf.tile(scales, [sequences]), x.dtype)
            of_tokens.append(tf.broadcast_to(rows[:, tf.newaxis], tf.shape(token_ids)))
            tape.watch(of_tokens)
            is_special = tf.reduce_any(
                [token_ids == special for special in tokenizer.special_token_ids], axis=0
            )
            x *= tf.where(is_special, tf.ones((), x.dtype), of_tokens[0])[:, :, tf.newaxis]
            if positions is None:
                positions = tf.range(tf.shape(token_ids)[1])
            x = backbone.embedding.add_positions(x, positions)
            return backbone.states_of_embeddings(x, indices, positions, branches)

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            outputs = self._model.predict_outputs(inputs, states_at=states_at)
            values = self._explained(outputs, answer)
        [gradients] = tape.gradient(values, of_tokens)
        ids = inputs["token_ids"]
        length = tf.shape(ids)[-1]
        by_order = tf.reshape(tf.cast(gradients, tf.float32), [-1, tf.size(scales), length])
        return values, tf.reshape(tf.transpose(by_order, [1, 0, 2]), tf.shape(ids))


def explained_without_each(
    frame: Callable[[Sequence[tf.RaggedTensor]], Mapping[str, tf.Tensor]],
    explained: Callable[[Mapping[str, tf.Tensor], tf.Tensor], tf.Tensor],
    segments: Sequence[tf.RaggedTensor],
    numbers: Sequence[tf.RaggedTensor],
    examples: tf.Tensor,
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
        numbers: of the shapes of `segments`: the number of each token's word, from 1.
        examples: int32 `[words]`, the index of each word's example.
        left_out: int32 `[n]`, the indices of the words to leave out.
        lengths: int32 `[batch]`, the number of tokens that the model reads of each example.
        answer: int32 `[batch]`, as `explained` takes it.

    Returns:
        float32 `[n]`.
    """
    of_words = tf.gather(lengths, tf.gather(examples, left_out))
    order = tf.argsort(of_words, direction="DESCENDING", stable=True)
    sorted_words = tf.gather(left_out, order)

    def compute(runs: tf.Tensor, state: State) -> State:
        word = tf.gather(sorted_words, runs)
        example = tf.gather(examples, word)
        kept = [
            _without(tf.gather(ids, example), tf.gather(of_tokens, example), 1 + word)
            for ids, of_tokens in zip(segments, numbers)
        ]
        values = explained(frame(kept), tf.gather(answer, example))
        where = tf.gather(order, runs)[:, tf.newaxis]
        return [tf.tensor_scatter_nd_update(state[0], where, values)]

    [values] = run_in_chunks(
        compute, [tf.zeros(tf.shape(left_out))], tf.gather(of_words, order), _MAX_TOKENS_LEFT_OUT
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

"""Integrated gradients: computes each word's share in an answer from the model's gradients."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from gpt1_keras.tasks.task import Task
from serving.export.explanations.explained_words import State, run_in_chunks

# One sequence of the paper's context. Larger chunks take more memory, and are hardly faster.
_MAX_TOKENS = 512

Explained = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


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
            _MAX_TOKENS,
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

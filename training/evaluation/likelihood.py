"""How likely texts are under a language model."""

import numpy as np
import tensorflow as tf

from gpt1_keras import GPT1CausalLM
from gpt1_keras.cli import progress
from gpt1_keras.tokenization.padding import bucket_lengths

_BATCH_SIZE = 16


class Scorer:
    """The likelihood of texts under a language model.

    Args:
        lm: with a preprocessor, and any backbone.
    """

    def __init__(self, lm: GPT1CausalLM) -> None:
        self._lm = lm
        self._context = lm.backbone.max_sequence_length
        self._means = tf.function(
            self._mean_log_probabilities,
            input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
            jit_compile=False,
        )

    def __call__(self, pairs: list[tuple[bytes, bytes]]) -> np.ndarray:
        """Scores continuations after prefixes.

        Args:
            pairs: of `(prefix, continuation)`.

        Returns:
            float64 array `[pairs]`: the mean log-probability, in nats, of the continuation's
            tokens. A pair's first token is given, not predicted. Where a pair is longer than the
            context, its first tokens are left out. A continuation without tokens to predict has
            -inf.
        """
        tokenizer = self._lm.preprocessor.tokenizer
        prefixes, continuations = (tokenizer(list(texts)).to_list() for texts in zip(*pairs))
        rows = [
            (prefix + continuation)[-self._context - 1 :]
            for prefix, continuation in zip(prefixes, continuations)
        ]
        predicted = [min(len(last), len(row) - 1) for last, row in zip(continuations, rows)]
        scores = np.full(len(rows), -np.inf)
        order = [i for i in np.argsort([len(row) for row in rows]) if predicted[i] > 0]
        lengths = [*bucket_lengths(self._context), self._context + 1]
        for start in progress(range(0, len(order), _BATCH_SIZE), "Scoring"):
            batch = order[start : start + _BATCH_SIZE]
            longest = max(len(rows[i]) for i in batch)
            length = next(length for length in lengths if length >= longest)
            tokens = np.zeros((len(batch), length), np.int32)
            mask = np.zeros((len(batch), length), np.int32)
            for row, i in enumerate(batch):
                tokens[row, : len(rows[i])] = rows[i]
                mask[row, len(rows[i]) - predicted[i] : len(rows[i])] = 1
            scores[batch] = self._means(tokens, mask).numpy()
        return scores

    def _mean_log_probabilities(self, tokens: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns float32 `[batch]`: means over tokens where the mask is 1; the first has 0."""
        hidden_states = self._lm.backbone({"token_ids": tokens[:, :-1]}, training=False)
        logits = self._lm.backbone.token_embedding(hidden_states, reverse=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            tokens[:, 1:], tf.cast(logits, tf.float32)
        )
        mask = tf.cast(mask[:, 1:], tf.float32)
        return -tf.reduce_sum(losses * mask, axis=1) / tf.reduce_sum(mask, axis=1)

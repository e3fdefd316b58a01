"""How likely texts are under a language model."""

import numpy as np
import tensorflow as tf

from gpt1_keras.tokenization.input_transformations import bucket_lengths

_BATCH_SIZE = 16


class Scorer:
    """The likelihood of texts under a language model.

    Args:
        lm: `GPT1CausalLM` with a preprocessor, whatever its backbone.
    """

    def __init__(self, lm):
        self._lm = lm
        self._context = lm.backbone.max_sequence_length
        self._means = tf.function(
            self._mean_log_probabilities,
            input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
            jit_compile=False,
        )

    def __call__(self, pairs):
        """Scores endings behind beginnings.

        Args:
            pairs: list of `(beginning, ending)`, bytes.

        Returns:
            float64 array `[pairs]`: the mean log-probability, in nats, of the ending's tokens. The
            first token of all is given, not predicted. Where a pair is longer than the context, its
            first tokens are left out. An ending without tokens to predict has -inf.
        """
        tokenizer = self._lm.preprocessor.tokenizer
        beginnings, endings = (tokenizer(list(texts)).to_list() for texts in zip(*pairs))
        rows = [(first + last)[-self._context - 1 :] for first, last in zip(beginnings, endings)]
        predicted = [min(len(last), len(row) - 1) for last, row in zip(endings, rows)]
        scores = np.full(len(rows), -np.inf)
        order = [i for i in np.argsort([len(row) for row in rows]) if predicted[i] > 0]
        for start in range(0, len(order), _BATCH_SIZE):
            batch = order[start : start + _BATCH_SIZE]
            longest = max(len(rows[i]) for i in batch)
            length = next(
                n for n in [*bucket_lengths(self._context), self._context + 1] if n >= longest
            )
            tokens = np.zeros((len(batch), length), np.int32)
            mask = np.zeros((len(batch), length), np.int32)
            for place, i in enumerate(batch):
                tokens[place, : len(rows[i])] = rows[i]
                mask[place, len(rows[i]) - predicted[i] : len(rows[i])] = 1
            scores[batch] = self._means(tokens, mask).numpy()
        return scores

    def _mean_log_probabilities(self, tokens, mask):
        """float32 `[batch]`, over the tokens where the mask is 1, of which none is the first."""
        states = self._lm.backbone({"token_ids": tokens[:, :-1]}, training=False)
        logits = tf.cast(self._lm.backbone.token_embedding(states, reverse=True), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tokens[:, 1:], logits)
        mask = tf.cast(mask[:, 1:], tf.float32)
        return -tf.reduce_sum(losses * mask, axis=1) / tf.reduce_sum(mask, axis=1)

"""Computes log-probabilities of the tokens of many texts at once."""

from collections.abc import Callable

import tensorflow as tf

from serving.export.decoder.cached_decoder import CachedDecoder

_ROWS_OF_LOGITS = 512  # at once: 83 MB with the paper's vocabulary


def log_probabilities(
    decoder: CachedDecoder,
    logits: Callable[[tf.Tensor], tf.Tensor],
    token_ids: tf.Tensor,
    num_tokens: tf.Tensor,
) -> tf.Tensor:
    """Scores each token given those before it, and computes nothing for padding.

    Args:
        logits: from hidden states, float `[n, hidden_dim]`, to float32 `[n, vocabulary_size]`.
        token_ids: int32 `[batch, length]`, padded on the right.
        num_tokens: int32 `[batch]`, the number of tokens of each text, which may be 0.

    Returns:
        float32 `[batch, length]`, in nats; 0 for the first token, which is given, and for padding.
    """
    length = token_ids.shape[1]
    read = tf.maximum(num_tokens, 1)
    states = decoder.states(token_ids, read)
    # The last token's target is padding; it is masked below.
    targets = tf.RaggedTensor.from_tensor(tf.roll(token_ids, -1, axis=1), tf.cast(read, tf.int64))

    def step(begin: tf.Tensor, found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        end = begin + _ROWS_OF_LOGITS
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            targets.values[begin:end], logits(states[begin:end])
        )
        return end, tf.concat([found, -losses], axis=0)

    _, found = tf.while_loop(
        lambda begin, _: begin < tf.size(targets.values),
        step,
        (0, tf.zeros([0])),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
        parallel_iterations=1,
    )
    of_targets = targets.with_values(found).to_tensor(0.0, shape=[None, length])[:, :-1]
    of_targets = tf.where(tf.sequence_mask(num_tokens - 1, length - 1), of_targets, 0.0)
    return tf.pad(of_targets, [[0, 0], [1, 0]])

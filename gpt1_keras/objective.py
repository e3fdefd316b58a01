"""The objectives: L1 (equation 1), L2 (equation 4) and L3 = L2 + lambda L1 (equation 5)."""

import keras
from keras import ops

from gpt1_keras.linear_cross_entropy import linear_cross_entropy


def next_token_loss(hidden_states, token_embedding, targets, weights, training):
    """The weighted sum of the cross-entropies of next tokens.

    Args:
        hidden_states: float `[batch, length, hidden_dim]`.
        token_embedding: `keras.layers.ReversibleEmbedding`, tied to the output.
        targets: int `[batch, length]`, the token behind each position.
        weights: float32 `[batch, length]`.
        training: bool, whether a gradient will be asked for.

    Returns:
        float32 scalar, in nats.
    """
    return linear_cross_entropy(
        ops.reshape(hidden_states, (-1, hidden_states.shape[-1])),
        ops.cast(token_embedding.embeddings, hidden_states.dtype),
        ops.cast(ops.reshape(targets, (-1,)), "int32"),
        ops.reshape(weights, (-1,)),
        training,
    )


def language_modeling_loss(hidden_states, token_embedding, token_ids, padding_mask, training=False):
    """L1 of padded sequences: the mean over sequences of the mean over their next tokens.

    Every real token but the first is predicted, special tokens included.

    Args:
        hidden_states: float `[batch, length, hidden_dim]`.
        token_embedding: `keras.layers.ReversibleEmbedding`, tied to the output.
        token_ids: int `[batch, length]`.
        padding_mask: `[batch, length]`, 1 where a token is.
        training: bool, whether a gradient will be asked for.

    Returns:
        float32 scalar, in nats per token.
    """
    mask = ops.cast(padding_mask[:, 1:], "float32")
    # A sequence of one token predicts nothing, and costs nothing.
    count = ops.maximum(ops.sum(mask, axis=1, keepdims=True), 1.0)
    sequences = ops.cast(ops.shape(token_ids)[0], "float32")
    return next_token_loss(
        hidden_states[:, :-1],
        token_embedding,
        token_ids[:, 1:],
        mask / count / sequences,
        training,
    )


@keras.saving.register_keras_serializable(package="gpt1_keras")
class AuxiliaryLanguageModeling(keras.layers.Layer):
    """Adds lambda L1 to the loss while training, and passes the hidden states on (section 3.2).

    Args:
        token_embedding: `keras.layers.ReversibleEmbedding`, tied to the output. It stays the
            backbone's; this layer only uses it.
    """

    def __init__(self, token_embedding, **kwargs):
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        self.coefficient = 0.0
        self.built = True

    def call(self, hidden_states, token_ids, padding_mask, training=None):
        if training and self.coefficient:
            loss = language_modeling_loss(
                hidden_states, self.token_embedding, token_ids, padding_mask, training
            )
            self.add_loss(self.coefficient * loss)
        return hidden_states

"""The objectives: L1 (equation 1), L2 (equation 4) and L3 = L2 + lambda L1 (equation 5)."""

import keras
from keras import ops


def language_modeling_loss(hidden_states, token_embedding, token_ids, padding_mask):
    """L1 for each sequence: the mean cross-entropy of its next tokens.

    Every real token but the first is predicted, special tokens included.

    Args:
        hidden_states: float `[batch, length, hidden_dim]`.
        token_embedding: `keras.layers.ReversibleEmbedding`, tied to the output.
        token_ids: int `[batch, length]`.
        padding_mask: `[batch, length]`, 1 where a token is.

    Returns:
        float32 `[batch]`, in nats per token.
    """
    logits = token_embedding(hidden_states[:, :-1], reverse=True)  # (B, T - 1, V)
    losses = ops.sparse_categorical_crossentropy(
        token_ids[:, 1:], ops.cast(logits, "float32"), from_logits=True
    )
    weights = ops.cast(padding_mask[:, 1:], "float32")
    # A sequence of one token predicts nothing, and costs nothing.
    count = ops.maximum(ops.sum(weights, axis=1), 1.0)
    return ops.sum(losses * weights, axis=1) / count


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
            losses = language_modeling_loss(
                hidden_states, self.token_embedding, token_ids, padding_mask
            )
            self.add_loss(self.coefficient * ops.mean(losses))
        return hidden_states

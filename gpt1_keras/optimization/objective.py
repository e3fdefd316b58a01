"""The objectives: L1 (equation 1), L2 (equation 4) and L3 = L2 + lambda L1 (equation 5)."""

import keras
from keras import ops

from gpt1_keras.models.custom_gradients.linear_cross_entropy import linear_cross_entropy


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


def sequence_weights(padding_mask):
    """What each next token counts in L1 of padded sequences.

    L1 is the mean over sequences of the mean over their next tokens. Every real token but the
    first is predicted, special tokens included.

    Args:
        padding_mask: `[batch, length]`, 1 where a token is.

    Returns:
        float32 `[batch, length - 1]`, the weights of `token_ids[:, 1:]`.
    """
    mask = ops.cast(padding_mask[:, 1:], "float32")
    # A sequence of one token predicts nothing, and costs nothing.
    count = ops.maximum(ops.sum(mask, axis=1, keepdims=True), 1.0)
    return mask / count / ops.cast(ops.shape(mask)[0], "float32")


def branch_weights(branches, branch_mask):
    """As `sequence_weights`, where sequences that begin alike share their beginning.

    Each branch with the beginning is a sequence of its own, so that a token of the beginning counts
    as often as there are branches. The mean is over examples, and in each over its branches.

    Args:
        branches: int `[batch, length]`, 0 in the beginning, 1, 2, ... in the branches that follow
            it, and -1 in the padding.
        branch_mask: `[batch, branches]`, 1 where a branch is.

    Returns:
        float32 `[batch, length - 1]`.
    """
    branch_mask = ops.cast(branch_mask, "float32")
    numbers = 1 + ops.arange(ops.shape(branch_mask)[1])
    lengths = ops.sum(ops.cast(branches[:, :, None] == numbers, "float32"), axis=1)
    beginnings = ops.sum(ops.cast(branches == 0, "float32"), axis=1, keepdims=True)
    # All tokens of a sequence but its first are predicted.
    in_branch = branch_mask / ops.maximum(beginnings + lengths - 1.0, 1.0)
    in_branch /= ops.maximum(ops.sum(branch_mask, axis=1, keepdims=True), 1.0)
    in_branch /= ops.cast(ops.shape(branch_mask)[0], "float32")
    table = ops.concatenate([ops.sum(in_branch, axis=1, keepdims=True), in_branch], axis=1)
    weights = ops.take_along_axis(table, ops.maximum(branches, 0), axis=1)
    # A branch's last token predicts nothing; the beginning's last the first of every branch, which
    # is the same token in all.
    here, next = branches[:, :-1], branches[:, 1:]
    is_predicted = (next == here) & (here >= 0) | (here == 0) & (next == 1)
    return weights[:, :-1] * ops.cast(is_predicted, "float32")


@keras.saving.register_keras_serializable(package="gpt1_keras")
class AuxiliaryLanguageModeling(keras.layers.Layer):
    """Adds lambda L1 to the loss while training, and passes the hidden states on (section 3.2).

    Args:
        token_embedding: `keras.layers.ReversibleEmbedding`, tied to the output. It stays the
            backbone's; this layer only uses it.
        weigh: `sequence_weights` or `branch_weights`, what each next token counts.

    Call arguments:
        hidden_states: float `[batch, length, hidden_dim]`.
        token_ids: int `[batch, length]`.
        *masks: what `weigh` takes.
    """

    def __init__(self, token_embedding, weigh=sequence_weights, **kwargs):
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        self.weigh = weigh
        self.coefficient = 0.0
        self.built = True

    def call(self, hidden_states, token_ids, *masks, training=None):
        if training and self.coefficient:
            loss = next_token_loss(
                hidden_states[:, :-1],
                self.token_embedding,
                token_ids[:, 1:],
                self.weigh(*masks),
                training,
            )
            self.add_loss(self.coefficient * loss)
        return hidden_states


@keras.saving.register_keras_serializable(package="gpt1_keras")
class SoftLabelCrossEntropy(keras.losses.Loss):
    """Cross-entropy of scores in a range, for regression by a classifier over its integers.

    A score between two integers is a probability of each: 3.6 is 3 with 0.4 and 4 with 0.6 (Tai,
    Socher & Manning 2015, equation 15). A reconstruction: the paper does not say how STS-B was
    trained, but the released code carries this encoding.

    Args:
        score_range: two integers, the least and the greatest score.

    Call arguments:
        y_true: float `[batch]`, scores.
        y_pred: float `[batch, high - low + 1]`, logits.
    """

    def __init__(self, score_range, name="soft_label_cross_entropy", **kwargs):
        super().__init__(name=name, **kwargs)
        self.score_range = tuple(score_range)

    def call(self, y_true, y_pred):
        low, high = self.score_range
        points = ops.arange(low, high + 1, dtype="float32")
        scores = ops.cast(y_true, "float32")[..., None]
        probabilities = ops.maximum(0.0, 1.0 - ops.abs(scores - points))
        return -ops.sum(
            probabilities * ops.log_softmax(ops.cast(y_pred, "float32"), axis=-1), axis=-1
        )

    def get_config(self):
        return {**super().get_config(), "score_range": self.score_range}

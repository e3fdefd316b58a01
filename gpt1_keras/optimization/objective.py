"""The objectives: L1 (equation 1), L2 (equation 4) and L3 = L2 + lambda L1 (equation 5)."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops, tree

from gpt1_keras.models.layers import ReversibleEmbedding
from gpt1_keras.models.linear_cross_entropy import linear_cross_entropy
from gpt1_keras.types import Tensor


def next_token_loss(
    hidden_states: Tensor,
    token_embedding: ReversibleEmbedding,
    targets: Tensor,
    weights: Tensor,
    training: bool,
) -> Tensor:
    """Returns the weighted sum of the cross-entropies of next tokens, float32 scalar, in nats.

    Hidden states are float `[batch, length, hidden_dim]`; targets, the token after each position,
    are int and weights float32 `[batch, length]`; `training` says whether a gradient is needed. The
    softmax leaves out the token table's untrained tokens.
    """
    return linear_cross_entropy(
        ops.reshape(hidden_states, (-1, hidden_states.shape[-1])),
        ops.cast(token_embedding.embeddings, hidden_states.dtype),
        ops.cast(ops.reshape(targets, (-1,)), "int32"),
        ops.reshape(weights, (-1,)),
        training,
        token_embedding.num_untrained_tokens,
    )


def sequence_weights(padding_mask: Tensor) -> Tensor:
    """Returns each next token's weight in L1 of padded sequences, float32 `[batch, length - 1]`.

    L1 is the mean over sequences of the mean over their next tokens. Every token except the first
    is predicted; this includes special tokens and excludes padding, where the mask, `[batch,
    length]`, is 0.
    """
    mask = ops.cast(padding_mask[:, 1:], "float32")
    # A sequence of one token has no next token, and a loss of 0.
    count = ops.maximum(ops.sum(mask, axis=1, keepdims=True), 1.0)
    return mask / count / ops.cast(ops.shape(mask)[0], "float32")


def branch_weights(branches: Tensor, branch_mask: Tensor) -> Tensor:
    """Returns each next token's weight in L1 of branches, float32 `[batch, length - 1]`.

    The prefix and one branch are one sequence, so a token of the prefix counts once for each
    branch. The mean is over examples, and within each over its branches. `branches`, int `[batch,
    length]`, are as in `visible_keys`; the mask, `[batch, branches]`, is 1 where there is one.
    """
    branch_mask = ops.cast(branch_mask, "float32")
    numbers = 1 + ops.arange(ops.shape(branch_mask)[1])
    lengths = ops.sum(ops.cast(branches[:, :, None] == numbers, "float32"), axis=1)
    prefix_lengths = ops.sum(ops.cast(branches == 0, "float32"), axis=1, keepdims=True)
    # All tokens of a sequence except its first are predicted.
    branch_weight = branch_mask / ops.maximum(prefix_lengths + lengths - 1.0, 1.0)
    branch_weight /= ops.maximum(ops.sum(branch_mask, axis=1, keepdims=True), 1.0)
    branch_weight /= ops.cast(ops.shape(branch_mask)[0], "float32")
    prefix_weight = ops.sum(branch_weight, axis=1, keepdims=True)
    table = ops.concatenate([prefix_weight, branch_weight], axis=1)
    weights = ops.take_along_axis(table, ops.maximum(branches, 0), axis=1)
    # The last token of a branch has no next token. The last token of the prefix has the first token
    # of every branch, which is the same token in all.
    own, next = branches[:, :-1], branches[:, 1:]
    is_predicted = (next == own) & (own >= 0) | (own == 0) & (next == 1)
    return weights[:, :-1] * ops.cast(is_predicted, "float32")


@keras.saving.register_keras_serializable(package="gpt1_keras")
class AuxiliaryLanguageModeling(keras.layers.Layer):
    """Adds lambda L1 to the loss while training, and passes the hidden states on (section 3.2).

    Its softmax is over all tokens, special tokens included, as in the released code. So it trains
    them, and the token table then has no untrained tokens. A table that is not trained, as with
    LoRA, keeps them: they take no part in the softmax, and weigh nothing as targets.

    Args:
        token_embedding: the token table, tied to the output. It belongs to the backbone; this layer
            only uses it. Without one, as in a clone of the model, nothing is added.
        weigh: `sequence_weights` or `branch_weights`.

    Call arguments:
        hidden_states: float `[batch, length, hidden_dim]`.
        token_ids: int `[batch, length]`.
        *masks: the arguments of `weigh`.
    """

    def __init__(
        self,
        token_embedding: ReversibleEmbedding | None = None,
        weigh: Callable[..., Tensor] = sequence_weights,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        self.weigh = weigh
        self.coefficient = 0.0
        self.example_weights: Tensor | None = None
        self.built = True

    @contextlib.contextmanager
    def weighted(self, example_weights: Tensor | None) -> Iterator[None]:
        """Weighs L1 like L2 inside the context, by float `[batch]`; None weighs all alike."""
        self.example_weights = example_weights
        try:
            yield
        finally:
            self.example_weights = None

    def call(
        self,
        hidden_states: Tensor,
        token_ids: Tensor,
        *masks: Tensor,
        training: bool | None = None,
    ) -> Tensor:
        if training and self.coefficient and self.token_embedding is not None:
            targets, weights = token_ids[:, 1:], self._weights(*masks)
            if self.trains_tokens:
                self.token_embedding.num_untrained_tokens = 0
            if untrained := self.token_embedding.num_untrained_tokens:
                is_known = targets < self.token_embedding.input_dim - untrained
                weights *= ops.cast(is_known, "float32")
            loss = next_token_loss(
                hidden_states[:, :-1], self.token_embedding, targets, weights, training
            )
            self.add_loss(self.coefficient * loss)
        return hidden_states

    @property
    def trains_tokens(self) -> bool:
        """Whether training adds L1, and changes the token table."""
        table = self.token_embedding
        return bool(self.coefficient and table is not None and table.trainable_variables)

    def _weights(self, *masks: Tensor) -> Tensor:
        """Returns the weight of each next token, float32 `[batch, length - 1]`."""
        weights = self.weigh(*masks)
        if self.example_weights is None:
            return weights
        of_examples = ops.reshape(ops.cast(self.example_weights, "float32"), (-1, 1))
        # Both orders of a pair have the weight of their example.
        shape = ops.shape(weights)
        weights = ops.reshape(weights, (-1, ops.shape(of_examples)[0], shape[1])) * of_examples
        return ops.reshape(weights, shape)

    def get_config(self) -> dict[str, Any]:
        # Not the token embedding and the weighing: a clone has its own layers, and adds no L1.
        return super().get_config()


@keras.saving.register_keras_serializable(package="gpt1_keras")
class SoftLabelCrossEntropy(keras.losses.Loss):
    """Cross-entropy of scores in a range, for regression by a classifier over the range's integers.

    A score between two integers is a probability of each: 3.6 is 3 with 0.4 and 4 with 0.6 (Tai,
    Socher & Manning 2015, equation 15). A reconstruction: the paper does not say how STS-B was
    trained, but the released code carries this encoding.

    Args:
        score_range: the lowest and the highest score, both whole numbers.

    Call arguments:
        y_true: float `[batch]` or `[batch, 1]`, scores.
        y_pred: float `[batch, high - low + 1]`, logits.
    """

    def __init__(
        self,
        score_range: tuple[float, float],
        name: str = "soft_label_cross_entropy",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.score_range = tuple(score_range)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        low, high = self.score_range
        points = ops.arange(low, high + 1, dtype="float32")
        scores = ops.cast(y_true, "float32")
        if len(scores.shape) < len(y_pred.shape):
            scores = scores[..., None]
        elif scores.shape[-1] != 1:  # it would be compared with each integer
            raise ValueError(f"Expected one score each. Received scores of shape {y_true.shape}.")
        probabilities = ops.maximum(0.0, 1.0 - ops.abs(scores - points))
        return -ops.sum(
            probabilities * ops.log_softmax(ops.cast(y_pred, "float32"), axis=-1), axis=-1
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "score_range": self.score_range}


def stateless_loss(
    task: Any,
    trainable: list[Tensor],
    non_trainable: list[Tensor],
    data: tuple[Any, Any, Any],
    training: bool = True,
) -> tuple[Tensor, Any, list[Tensor]]:
    """Computes a task's `forward_loss` of `(x, y, sample_weight)` at given values of its variables.

    Returns `(loss, outputs, new values of the non-trainable variables)`.
    """
    variables = [*task.trainable_variables, *task.non_trainable_variables]
    mapping = zip(variables, [*trainable, *non_trainable])
    with keras.StatelessScope(mapping, collect_losses=True) as scope:
        outputs, loss = task.forward_loss(*data, training)
    state = [scope.get_current_value(v) for v in task.non_trainable_variables]
    return loss, outputs, state


def map_tensors(function: Callable[[Tensor], Tensor], data: Any) -> Any:
    """Applies a function to each tensor of `(x, y, sample_weight)`; None stays None."""
    return tree.map_structure(lambda t: None if t is None else function(t), data)

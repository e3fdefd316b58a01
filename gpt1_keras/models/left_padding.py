"""Padding that is not on the right.

A causal model never sees padding on the right, so models compute only sequences of that form. The
tokens of any other sequence move to the front, in their order. Then those that the padding mask
leaves out have no influence, on the left, on the right or in between.
"""

import keras
from keras import ops

from gpt1_keras.types import Tensor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class MoveToFront(keras.layers.Layer):
    """Moves tokens to the front of their sequence, and padding after them.

    Values, such as token ids, and the result are `[batch, length]`. So is the mask, nonzero where
    there is a token; None if there is one everywhere.
    """

    def call(self, values: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if padding_mask is None:
            return values
        return ops.take_along_axis(values, ops.argsort(_places(padding_mask), axis=1), axis=1)

    def compute_output_spec(
        self, values: Tensor, padding_mask: Tensor | None = None
    ) -> keras.KerasTensor:
        return keras.KerasTensor(values.shape, values.dtype)


@keras.saving.register_keras_serializable(package="gpt1_keras")
class MoveBack(keras.layers.Layer):
    """The inverse of `MoveToFront`, for hidden states, float `[batch, length, hidden_dim]`.

    It takes the same mask. States are undefined where there is no token.
    """

    def call(self, states: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if padding_mask is None:
            return states
        batch, length, width = ops.shape(states)
        # This gathers whole rows of a matrix; `take_along_axis` would gather number by number.
        rows = length * ops.arange(batch, dtype="int32")[:, None] + _places(padding_mask)
        return ops.take(ops.reshape(states, (-1, width)), rows, axis=0)

    def compute_output_spec(
        self, states: Tensor, padding_mask: Tensor | None = None
    ) -> keras.KerasTensor:
        return keras.KerasTensor(states.shape, states.dtype)


def move_to_front(token_ids: Tensor, padding_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Returns both with the tokens at the front; the mask's values become 0 and 1."""
    move = MoveToFront(name="move_to_front")
    is_token = ops.cast(ops.not_equal(padding_mask, 0), "int32")
    return move(token_ids, padding_mask), move(is_token, padding_mask)


def _places(padding_mask: Tensor) -> Tensor:
    """Returns where each token and each padding moves, int32 `[batch, length]`."""
    is_token = ops.cast(ops.not_equal(padding_mask, 0), "int32")
    tokens = ops.cumsum(is_token, axis=1)
    padding = ops.cumsum(1 - is_token, axis=1)
    return ops.where(is_token == 1, tokens, tokens[:, -1:] + padding) - 1

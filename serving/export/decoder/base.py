"""What an export's decoder asks of a block, whatever numbers it multiplies."""

from collections.abc import Sequence
from typing import Protocol

import keras
import tensorflow as tf


class ServedBlock(Protocol):
    """A post-norm block of the Transformer on rows, all but its attention.

    Attributes:
        num_heads: number of attention heads.
        row_sizes: sizes to which the decoder pads the rows, ascending; None if any number will do.
        replaced: weights of the model that the block does not read, as it has its own instead.
    """

    num_heads: int
    row_sizes: Sequence[int] | None
    replaced: Sequence[keras.Variable]

    def query_key_value(self, x: tf.Tensor) -> tf.Tensor:
        """float `[rows, hidden_dim]` to `[rows, 3 * hidden_dim]`."""

    def finish(self, attended: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """The rest of the block: projection, residual, norm, feed-forward, residual, norm.

        Args:
            attended: float `[rows, hidden_dim]`, what attention returned.
            x: float `[rows, hidden_dim]`, the block's input.

        Returns:
            float `[rows, hidden_dim]`.
        """

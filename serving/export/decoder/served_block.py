"""ServedBlock: the interface of an export's blocks, in float and in 8 bits."""

from typing import Protocol

import tensorflow as tf


class ServedBlock(Protocol):
    """A block of the Transformer without its attention, computed on rows, like `TransformerBlock`.

    Attributes:
        num_heads: number of attention heads.
    """

    num_heads: int

    def project(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Returns queries, keys and values side by side.

        Args:
            x: float `[rows, hidden_dim]`.
            positions: int32 `[rows]`.

        Returns:
            float `[rows, 3 * hidden_dim]`.
        """

    def finish(self, attended: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Applies the rest of the block.

        Args:
            attended: float `[rows, hidden_dim]`, what attention returned.
            x: float `[rows, hidden_dim]`, the block's input.

        Returns:
            float `[rows, hidden_dim]`.
        """

"""A block as Keras computes it, whatever became of its layers."""

from collections.abc import Sequence

import keras
import tensorflow as tf
from keras import ops

from gpt1_keras.models.transformer_block import TransformerBlock


class KerasBlock:
    """A `ServedBlock` that calls its model's layers, such as quantized ones or of several dtypes.

    Args:
        block: of a `GPT1Backbone`.
    """

    row_sizes: Sequence[int] | None = None
    replaced: Sequence[keras.Variable] = ()

    def __init__(self, block: TransformerBlock) -> None:
        self.num_heads = block.num_heads
        self._block = block

    def query_key_value(self, x: tf.Tensor) -> tf.Tensor:
        return self._block.attention.qkv(x)

    def finish(self, attended: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        block = self._block
        x = block.attention_norm(ops.add(x, block.attention.output_projection(attended)))
        hidden = keras.activations.gelu(block.expand(x), approximate=True)
        return block.feedforward_norm(ops.add(x, block.contract(hidden)))

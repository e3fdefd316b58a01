"""A block in the float dtype of its model, in the forms that TensorFlow's graph optimizer fuses.

On processors where oneDNN is on, a product takes its bias, GELU or residual along, as long as it is
of two dimensions and feeds `tf.nn.bias_add` directly.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf
from keras import ops

from gpt1_keras.models.transformer_block import TransformerBlock


class FloatBlock:
    """A `ServedBlock` in float32 or bfloat16.

    Args:
        block: of a `GPT1Backbone`, whose variables are read; LoRA's part is added to its kernels.
    """

    row_sizes: Sequence[int] | None = None
    replaced: Sequence[keras.Variable] = ()

    def __init__(self, block: TransformerBlock) -> None:
        self.num_heads = block.num_heads
        self._block = block

    def query_key_value(self, x: tf.Tensor) -> tf.Tensor:
        return dense(self._block.attention.qkv, x)

    def finish(self, attended: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        block = self._block
        x = x + dense(block.attention.output_projection, attended)
        x = layer_norm(block.attention_norm, x)
        hidden = tf.nn.gelu(dense(block.expand, x), approximate=True)
        return layer_norm(block.feedforward_norm, x + dense(block.contract, hidden))


def dense(layer: keras.layers.Dense, x: tf.Tensor) -> tf.Tensor:
    """A linear layer of rows, float `[rows, inputs]`."""
    kernel, bias = (ops.cast(weight, x.dtype) for weight in (layer.kernel, layer.bias))
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


def layer_norm(layer: keras.layers.LayerNormalization, x: tf.Tensor) -> tf.Tensor:
    """Layer normalisation of rows, float `[rows, width]`, in float32.

    The forms that the optimizer fuses give it another epsilon; or run on no GPU, take 8 times as
    long where oneDNN is off, and 4 times as long for one short text where it is on.
    """
    wide = tf.cast(x, tf.float32)
    centred = wide - tf.reduce_mean(wide, axis=-1, keepdims=True)
    variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
    normal = centred * tf.math.rsqrt(variance + layer.epsilon)
    gamma, beta = (ops.cast(weight, tf.float32) for weight in (layer.gamma, layer.beta))
    return tf.cast(normal * gamma + beta, x.dtype)

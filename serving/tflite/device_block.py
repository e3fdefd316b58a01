"""One block of the backbone, and its layers, in the ops that LiteRT runs fast."""

from typing import TypeAlias

import keras
import tensorflow as tf
from keras import ops
from tensorflow.compiler.tf2xla.python.xla import dynamic_update_slice

KeysAndValues: TypeAlias = tuple[tf.Tensor, tf.Tensor]  # float [rows, heads, length, head_dim]


class Dense(tf.Module):
    """A dense layer, x W + b, in float32.

    Args:
        layer: whose weights to take; LoRA's part is merged into the kernel.
    """

    def __init__(self, layer: keras.layers.Dense) -> None:
        super().__init__()
        self._kernel, self._bias = constant(layer.kernel), constant(layer.bias)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """float `[n, in]` to `[n, out]`."""
        return tf.matmul(x, self._kernel) + self._bias


class LayerNorm(tf.Module):
    """Layer normalisation over the last axis, in float32.

    Args:
        layer: whose weights to take.
    """

    def __init__(self, layer: keras.layers.LayerNormalization) -> None:
        super().__init__()
        self._gamma, self._beta = constant(layer.gamma), constant(layer.beta)
        self._epsilon = layer.epsilon

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """float `[n, width]` to the same."""
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
        return centred * tf.math.rsqrt(variance + self._epsilon) * self._gamma + self._beta


class DeviceBlock(tf.Module):
    """A post-norm block of the Transformer (figure 1).

    Args:
        block: of a `GPT1Backbone`, whose weights to take.
    """

    def __init__(self, block: keras.layers.Layer) -> None:
        super().__init__()
        self._heads = block.num_heads
        self._qkv = Dense(block.attention.qkv)
        self._output = Dense(block.attention.output_projection)
        self._attention_norm = LayerNorm(block.attention_norm)
        self._expand, self._contract = Dense(block.expand), Dense(block.contract)
        self._feedforward_norm = LayerNorm(block.feedforward_norm)

    def __call__(
        self,
        x: tf.Tensor,
        mask: tf.Tensor,
        only: tf.Tensor | None = None,
        past: KeysAndValues | None = None,
        index: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, KeysAndValues]:
        """Computes the block.

        Args:
            x: float `[rows * length, width]`.
            mask: float `[rows, 1, queries, keys]`, added to the attention scores.
            only: int32 `[n]`, the rows of x to compute outputs for; by default all.
            past: keys and values, which the new ones are written into.
            index: int32 scalar, where on the axis of the length.

        Returns:
            float `[rows * length or n, width]`, and keys and values.
        """
        width = x.shape[1]
        query, key, value = tf.split(self._qkv(x), 3, axis=-1)
        if only is not None:
            x, query = tf.gather(x, only), tf.gather(query, only)
        query, key, value = (
            self._split_heads(each, rows=mask.shape[0]) for each in (query, key, value)
        )
        if past is not None:
            key, value = (
                dynamic_update_slice(old, new, [0, 0, index, 0])
                for old, new in zip(past, (key, value))
            )
        scores = tf.matmul(query * query.shape[-1] ** -0.5, key, transpose_b=True) + mask
        attended = tf.matmul(tf.nn.softmax(scores), value)
        attended = tf.reshape(tf.transpose(attended, (0, 2, 1, 3)), [-1, width])
        x = self._attention_norm(x + self._output(attended))
        transformed = self._contract(tf.nn.gelu(self._expand(x), approximate=True))
        return self._feedforward_norm(x + transformed), (key, value)

    def _split_heads(self, x: tf.Tensor, rows: int) -> tf.Tensor:
        """`[rows * n, width]` to `[rows, heads, n, head_dim]`."""
        head_dim = x.shape[1] // self._heads
        return tf.transpose(tf.reshape(x, [rows, -1, self._heads, head_dim]), (0, 2, 1, 3))


def constant(weight: keras.Variable) -> tf.Variable:
    """Returns a weight as a float32 variable that does not train."""
    return tf.Variable(ops.convert_to_numpy(ops.cast(weight, "float32")), trainable=False)

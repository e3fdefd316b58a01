"""One block of the backbone, and its layers, with the ops that LiteRT runs fast."""

from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from tensorflow.compiler.tf2xla.python.xla import dynamic_update_slice

KeysAndValues: TypeAlias = tuple[tf.Tensor, tf.Tensor]  # float [1, heads, length, head_dim]


class Dense(tf.Module):
    """A dense layer, x W + b, in float32.

    Args:
        kernel: float array `[in, out]`.
        bias: float array `[out]`.
    """

    def __init__(self, kernel: np.ndarray, bias: np.ndarray) -> None:
        super().__init__()
        self._kernel, self._bias = constant(kernel), constant(bias)

    @classmethod
    def of(cls, layer: keras.layers.Dense) -> "Dense":
        """Makes a layer with the weights of another one; the kernel includes LoRA's part."""
        return cls(to_array(layer.kernel), to_array(layer.bias))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Maps float `[n, in]` to `[n, out]`."""
        return tf.matmul(x, self._kernel) + self._bias


class LayerNorm(tf.Module):
    """Layer normalisation over the last axis, in float32."""

    def __init__(self, layer: keras.layers.LayerNormalization) -> None:
        super().__init__()
        self._gamma, self._beta = (constant(to_array(each)) for each in (layer.gamma, layer.beta))
        self._epsilon = layer.epsilon

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Maps float `[n, width]` to the same shape."""
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
        return centred * tf.math.rsqrt(variance + self._epsilon) * self._gamma + self._beta


class DeviceBlock(tf.Module):
    """A post-norm block of the Transformer (figure 1)."""

    def __init__(self, block: keras.layers.Layer) -> None:
        super().__init__()
        self._heads = block.num_heads
        qkv = block.attention.qkv
        kernels = np.split(to_array(qkv.kernel), 3, axis=1)
        biases = np.split(to_array(qkv.bias), 3)
        # The queries' weights divide scores by sqrt(head_dim).
        scale = (kernels[0].shape[1] // self._heads) ** -0.5
        kernels[0], biases[0] = kernels[0] * scale, biases[0] * scale
        self._query, self._key, self._value = map(Dense, kernels, biases)
        self._output = Dense.of(block.attention.output_projection)
        self._attention_norm = LayerNorm(block.attention_norm)
        self._expand, self._contract = Dense.of(block.expand), Dense.of(block.contract)
        self._feedforward_norm = LayerNorm(block.feedforward_norm)

    def __call__(
        self,
        x: tf.Tensor,
        mask: tf.Tensor,
        asked: tf.Tensor | None = None,
        past: KeysAndValues | None = None,
        index: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, KeysAndValues]:
        """Computes the block.

        Args:
            x: float `[length, width]`.
            mask: float `[queries, keys]`, added to the attention scores.
            asked: int32 `[n]`, the indices in x of the tokens to compute outputs for; by default
                all.
            past: keys and values of a cache, into which the new ones are written.
            index: int32 scalar, the index in `past` at which they are written.

        Returns:
            float `[length, width]` or `[n, width]`; and keys and values.
        """
        width = x.shape[1]
        key, value = (self._split_heads(project(x)) for project in (self._key, self._value))
        if asked is not None:
            x = tf.gather(x, asked)
        query = self._split_heads(self._query(x))
        if past is not None:
            key, value = (
                dynamic_update_slice(old, new, [0, 0, index, 0])
                for old, new in zip(past, (key, value))
            )
        scores = tf.matmul(query, key, transpose_b=True) + mask  # [1, heads, queries, keys]
        attended = tf.matmul(tf.nn.softmax(scores), value)  # [1, heads, queries, head_dim]
        attended = tf.reshape(tf.transpose(attended, (0, 2, 1, 3)), [-1, width])
        x = self._attention_norm(x + self._output(attended))
        transformed = self._contract(tf.nn.gelu(self._expand(x), approximate=True))
        return self._feedforward_norm(x + transformed), (key, value)

    def _split_heads(self, x: tf.Tensor) -> tf.Tensor:
        """Maps `[n, width]` to `[1, heads, n, head_dim]`."""
        head_dim = x.shape[1] // self._heads
        return tf.transpose(tf.reshape(x, [1, -1, self._heads, head_dim]), (0, 2, 1, 3))


def to_array(weight: keras.Variable) -> np.ndarray:
    """Returns a weight in float32."""
    return ops.convert_to_numpy(ops.cast(weight, "float32"))


def constant(array: np.ndarray) -> tf.Variable:
    """Returns an array as a variable that is not trained; the file then holds it only once."""
    return tf.Variable(array, trainable=False)

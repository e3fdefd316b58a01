"""The backbone with the shapes and ops that LiteRT runs fast, in float32.

Inputs and outputs of signatures have fixed shapes, and yet a short text must cost less than a long
one. So a text is first cut to its tokens, and all later tensors have its length: XNNPACK, which
computes for LiteRT, accepts another length in each run. Masks are added, as LiteRT's kernel for
selecting is slow, and are floats, as XNNPACK computes only with floats.
"""

from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from tensorflow.compiler.tf2xla.python.xla import dynamic_update_slice

from gpt1_keras.models.attention import MASKED_SCORE
from gpt1_keras.models.gpt1_backbone import GPT1Backbone, check_no_variant

KeysAndValues: TypeAlias = tuple[tf.Tensor, tf.Tensor]  # float [1, heads, length, head_dim]

LOGITS = "logits"  # in the name of the product that shares the token embeddings' weights


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


Cache: TypeAlias = list[KeysAndValues]  # of each block


class DeviceBackbone(tf.Module):
    """Reads texts of at most `sequence_length` tokens.

    Args:
        sequence_length: the most tokens of a text, at most the backbone's context.

    Raises:
        ValueError: the backbone is a variant of GPT1Backbone.

    Attributes:
        cache_shape: `[layers, 2, heads, length, head_dim]`: keys and values of a text.
    """

    def __init__(self, backbone: GPT1Backbone, sequence_length: int) -> None:
        super().__init__()
        check_no_variant(backbone, "A device")
        self.sequence_length = sequence_length
        self.vocabulary_size, self.hidden_dim = backbone.vocabulary_size, backbone.hidden_dim
        self._tokens = constant(to_array(backbone.token_embedding.embeddings))
        self._positions = constant(
            to_array(backbone.embedding.positions.embeddings)[:sequence_length]
        )
        self._blocks = [DeviceBlock(block) for block in backbone.blocks]
        self._untrained = backbone.num_untrained_tokens
        heads = [backbone.num_heads, sequence_length, backbone.hidden_dim // backbone.num_heads]
        self.cache_shape = [len(self._blocks), 2, *heads]

    def states_at(
        self,
        token_ids: tf.Tensor,
        indices: tf.Tensor,
        positions: tf.Tensor | None = None,
        branches: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Computes the hidden states of some tokens, like `CausalBackbone.states_at`.

        Args:
            token_ids: int32 `[rows, length]`.
            indices: int32 `[rows, n]`, the tokens' indices. The result for an index of -1 is
                undefined.
            positions, branches: int32 `[rows, length]`, as `pad_choices` returns them.

        Returns:
            float `[rows, n, hidden_dim]`.
        """
        return self._read(token_ids, indices, positions, branches)[0]

    def last_state_and_cache(
        self, token_ids: tf.Tensor, num_tokens: tf.Tensor
    ) -> tuple[tf.Tensor, Cache]:
        """Reads one text, so that `next_state` can continue it.

        Args:
            token_ids: int32 `[1, sequence_length]`.
            num_tokens: int32 `[1]`, at least 1.

        Returns:
            `(state, cache)`: float `[1, hidden_dim]`, and keys and values, float
            `[1, heads, sequence_length, head_dim]`, of each block.
        """
        states, cache = self._read(token_ids, num_tokens[tf.newaxis] - 1)
        room = tf.zeros([1, *self.cache_shape[2:]])
        return states[:, 0], [
            tuple(dynamic_update_slice(room, x, [0, 0, 0, 0]) for x in pair) for pair in cache
        ]

    def next_state(
        self, token_id: tf.Tensor, position: tf.Tensor, cache: Cache
    ) -> tuple[tf.Tensor, Cache]:
        """Reads one more token of one text.

        Args:
            token_id: int32 `[1]`.
            position: int32 `[1]`, the number of tokens read before, less than `sequence_length`.
            cache: as `last_state_and_cache` returns it.

        Returns:
            `(state, cache)`, likewise.
        """
        x = self._embed(token_id, position)
        keys = tf.range(self.sequence_length, dtype=tf.float32)
        mask = mask_between(tf.cast(position, tf.float32), keys)
        new = []
        for block, past in zip(self._blocks, cache, strict=True):
            x, pair = block(x, mask, past=past, index=position[0])
            new.append(pair)
        return x, new

    def logits(self, states: tf.Tensor) -> tf.Tensor:
        """Returns the next token's logits, float `[n, vocabulary_size]` (equation 2).

        Of untrained tokens, they are -1e9.
        """
        with tf.name_scope(LOGITS):
            logits = tf.matmul(states, self._tokens, transpose_b=True)
        if not self._untrained:
            return logits
        # Not a mask that is added: as the product's bias, it would let the converter multiply the
        # last gamma into the table, and the file would hold another one.
        untrained = tf.fill([states.shape[0], self._untrained], MASKED_SCORE)
        return tf.concat([logits[:, : -self._untrained], untrained], axis=1)

    def _read(
        self,
        token_ids: tf.Tensor,
        indices: tf.Tensor,
        positions: tf.Tensor | None = None,
        branches: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, Cache]:
        """Reads texts up to the last of the indices; arguments as in `states_at`.

        Returns:
            States, float `[rows, n, hidden_dim]`, and keys and values of each block.
        """
        rows, asked = indices.shape[0], tf.maximum(indices, 0)
        length = tf.reduce_max(asked) + 1  # nothing reads the tokens after it
        tokens = tf.range(rows * length)
        if rows > 1:  # they are read as branches without a shared prefix
            asked += tf.range(rows)[:, tf.newaxis] * length
            branches, positions = tokens // length + 1, tokens % length
        else:
            branches, positions = (
                None if each is None else each[0, :length] for each in (branches, positions)
            )
        x = self._embed(tf.reshape(token_ids[:, :length], [-1]), positions)
        asked = tf.reshape(asked, [-1])
        keys, queries = tf.cast(tokens, tf.float32), tf.cast(asked, tf.float32)
        key_branches = None if branches is None else tf.cast(branches, tf.float32)
        query_branches = None if branches is None else tf.gather(key_branches, asked)

        mask = mask_between(keys, keys, key_branches, key_branches)
        cache = []
        for block in self._blocks[:-1]:
            x, pair = block(x, mask)
            cache.append(pair)
        # For the other tokens, the last block computes only keys and values.
        mask = mask_between(queries, keys, query_branches, key_branches)
        x, pair = self._blocks[-1](x, mask, asked=asked)
        return tf.reshape(x, [*indices.shape, self.hidden_dim]), [*cache, pair]

    def _embed(self, token_ids: tf.Tensor, positions: tf.Tensor | None = None) -> tf.Tensor:
        """Maps int32 `[length]` to float `[length, hidden_dim]`."""
        x = _look_up(tf.convert_to_tensor(self._tokens), token_ids)
        if positions is None:
            return x + self._positions[: tf.size(token_ids)]
        return x + tf.gather(self._positions, positions)


def mask_between(
    queries: tf.Tensor,
    keys: tf.Tensor,
    query_branches: tf.Tensor | None = None,
    key_branches: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns the mask that is added to attention scores, float `[n, length]`.

    Args:
        queries: float `[n]`, the indices of the tokens that attend.
        keys: float `[length]`, the indices of the tokens that they attend to.
        query_branches, key_branches: optional float `[n]` and `[length]`, 0 for the shared prefix.
    """
    mask = tf.nn.relu(keys - queries[:, tf.newaxis])
    if query_branches is not None:
        # 0 where the key is in the shared prefix or in the query's branch.
        apart = key_branches * (key_branches - query_branches[:, tf.newaxis])
        mask += apart * apart
    return mask * MASKED_SCORE


# The converter turns a function of this name into LiteRT's op for embeddings, which can be
# quantized.
@tf.function(experimental_implements="embedding_matmul", autograph=False)
def _look_up(table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    return tf.gather(table, ids)

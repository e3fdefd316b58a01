"""The layers of the decoder, in keras.ops alone.

In training they take `lean_ops`; in inference stock operations, as the lean ones would bring their
gradients into exports.
"""

import keras
from keras import ops

from gpt1_keras.models.custom_gradients import attention
from gpt1_keras.models.custom_gradients.random_mask import random_mask

INITIALIZER_STDDEV = 0.02
LAYER_NORM_EPSILON = 1e-5


def initializer():
    """N(0, 0.02), which the paper uses for every matrix (section 4.1)."""
    return keras.initializers.RandomNormal(stddev=INITIALIZER_STDDEV)


@keras.saving.register_keras_serializable(package="gpt1_keras")
class TokenAndPositionEmbedding(keras.layers.Layer):
    """The sum of token and learned position embeddings: h_0 = U W_e + W_p (equation 2).

    Args:
        vocabulary_size: int, rows of the token table.
        max_sequence_length: int, rows of the position table.
        hidden_dim: int, width of both.
    """

    def __init__(self, vocabulary_size, max_sequence_length, hidden_dim, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.max_sequence_length = max_sequence_length
        self.hidden_dim = hidden_dim
        self.tokens = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            hidden_dim,
            embeddings_initializer=initializer(),
            dtype=self.dtype_policy,
            name="tokens",
        )
        self.positions = keras.layers.Embedding(
            max_sequence_length,
            hidden_dim,
            embeddings_initializer=initializer(),
            dtype=self.dtype_policy,
            name="positions",
        )

    def build(self, input_shape):
        self.tokens.build(input_shape)
        self.positions.build(input_shape)
        self.built = True

    def call(self, token_ids, start_index=0, positions=None):
        """Embeds token ids.

        Args:
            token_ids: int `[batch, length]`.
            start_index: int scalar, the position of the first token.
            positions: optional int `[batch, length]`, where positions are not in a row.

        Returns:
            float `[batch, length, hidden_dim]`.
        """
        if positions is not None:
            return self.tokens(token_ids) + self.positions(positions)
        # On the JAX backend, an open dimension is a symbol.
        length = token_ids.shape[1]
        if isinstance(length, int) and length > self.max_sequence_length:
            raise ValueError(
                f"A sequence may have at most {self.max_sequence_length} tokens, the context of "
                f"this model. Received token_ids of shape {tuple(token_ids.shape)}."
            )
        positions = start_index + ops.arange(ops.shape(token_ids)[1], dtype="int32")
        return self.tokens(token_ids) + self.positions(positions)

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "max_sequence_length": self.max_sequence_length,
            "hidden_dim": self.hidden_dim,
        }


@keras.saving.register_keras_serializable(package="gpt1_keras")
class CausalSelfAttention(keras.layers.Layer):
    """Masked multi-head self-attention: softmax(q k^T / sqrt(d)) v over what came before.

    Args:
        num_heads: int, must divide the width of the input.
        dropout: float, on the attention's probabilities.
    """

    def __init__(self, num_heads, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout = dropout

    def build(self, input_shape):
        hidden_dim = input_shape[-1]
        if hidden_dim % self.num_heads:
            raise ValueError(
                f"num_heads must divide hidden_dim. Received: num_heads={self.num_heads}, "
                f"hidden_dim={hidden_dim}."
            )
        self.head_dim = hidden_dim // self.num_heads
        self.qkv = _dense(3 * hidden_dim, self.dtype_policy, "qkv")
        self.output_projection = _dense(hidden_dim, self.dtype_policy, "output_projection")
        self.seed_generator = keras.random.SeedGenerator()
        self.qkv.build(input_shape)
        self.output_projection.build(input_shape)
        self.built = True

    def call(self, x, branches=None, queries=None, cache=None, cache_index=0, training=None):
        """Attends to this and all earlier positions.

        Args:
            x: float `[batch, length, hidden_dim]`.
            branches: optional int `[batch, length]`, as in `attention.visible_keys`.
            queries: optional int `[batch, queries]`, the only positions to give an output for; in
                inference.
            cache: optional float `[batch, 2, num_heads, max_length, head_dim]`, the keys and
                values of earlier positions.
            cache_index: int scalar, the position of `x[:, 0]` in the cache.

        Returns:
            float `[batch, length, hidden_dim]`, or `[batch, queries, hidden_dim]`; with a cache,
            `(output, updated cache)`.
        """
        batch, length = ops.shape(x)[0], ops.shape(x)[1]
        qkv = ops.reshape(self.qkv(x), (batch, length, 3, self.num_heads, self.head_dim))
        qkv = ops.transpose(qkv, (2, 0, 3, 1, 4))  # (3, B, heads, T, head_dim)
        qkv = ops.unstack(qkv, 3)  # each (B, heads, T, head_dim)
        if training:
            draw = self._sample_kept if self.dropout else None
            x = attention.causal_attention(*qkv, draw, 1.0 - self.dropout, branches)
        elif queries is not None:
            is_visible = ops.broadcast_to(
                attention.visible_keys(length, length, branches), (batch, 1, length, length)
            )
            of_queries = queries[:, None, :, None]
            query = ops.take_along_axis(qkv[0], of_queries, axis=2)
            x = _attention(query, *qkv[1:], ops.take_along_axis(is_visible, of_queries, axis=2))
            length = ops.shape(queries)[1]
        elif cache is None:
            x = _attention(*qkv, attention.visible_keys(length, length, branches))
        else:
            x, cache = _cached_attention(*qkv, cache, cache_index)
        x = ops.reshape(x, (batch, length, self.num_heads * self.head_dim))
        x = self.output_projection(x)
        return x if cache is None else (x, cache)

    def _sample_kept(self, shape):
        return random_mask(shape, 1.0 - self.dropout, self.seed_generator)

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads, "dropout": self.dropout}


@keras.saving.register_keras_serializable(package="gpt1_keras")
class Dropout(keras.layers.Dropout):
    """Keras's, by random numbers that cost less."""

    def call(self, x, training=False):
        if not training or not self.rate:
            return x
        kept = random_mask(ops.shape(x), 1.0 - self.rate, self.seed_generator)
        return ops.where(kept, x / (1.0 - self.rate), ops.zeros((), x.dtype))


@keras.saving.register_keras_serializable(package="gpt1_keras")
class TransformerBlock(keras.layers.Layer):
    """A decoder block, normalised behind each sum: n = LN(x + attn(x)); h = LN(n + mlp(n)).

    Args:
        num_heads: int, heads of the attention.
        intermediate_dim: int, width of the feed-forward layer.
        dropout: float, on the attention's probabilities and both residual branches.
    """

    def __init__(self, num_heads, intermediate_dim, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout

    def build(self, input_shape):
        dtype, hidden_dim = self.dtype_policy, input_shape[-1]
        self.attention = CausalSelfAttention(
            self.num_heads, self.dropout, dtype=dtype, name="attention"
        )
        self.attention_norm = _layer_norm(dtype, "attention_norm")
        self.expand = _dense(self.intermediate_dim, dtype, "expand")
        self.contract = _dense(hidden_dim, dtype, "contract")
        self.feedforward_norm = _layer_norm(dtype, "feedforward_norm")
        self.residual_dropout = Dropout(self.dropout, dtype=dtype)
        for layer in (self.attention, self.attention_norm, self.expand, self.feedforward_norm):
            layer.build(input_shape)
        self.contract.build((*input_shape[:-1], self.intermediate_dim))
        self.built = True

    def call(self, x, branches=None, queries=None, cache=None, cache_index=0, training=None):
        """Applies the block; arguments and result are as those of `CausalSelfAttention`."""
        attended = self.attention(
            x,
            branches=branches,
            queries=queries,
            cache=cache,
            cache_index=cache_index,
            training=training,
        )
        if cache is not None:
            attended, cache = attended
        if queries is not None:
            x = ops.take_along_axis(x, queries[:, :, None], axis=1)
        x = x + self.residual_dropout(attended, training=training)
        x = _normalize(self.attention_norm, x, training)
        transformed = _activate(self.contract, self.expand(x), training)
        x = x + self.residual_dropout(transformed, training=training)
        x = _normalize(self.feedforward_norm, x, training)
        return x if cache is None else (x, cache)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
        }


def _attention(query, key, value, is_visible):
    """Attention without dropout, float `[batch, length, heads, head_dim]`."""
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # (B, heads, T, S)
    scores = ops.cast(scores, "float32") * query.shape[-1] ** -0.5
    scores = ops.where(is_visible, scores, -1e9)
    probabilities = ops.cast(ops.softmax(scores, axis=-1), value.dtype)
    return ops.transpose(ops.matmul(probabilities, value), (0, 2, 1, 3))


def _cached_attention(query, key, value, cache, cache_index):
    """Attention over earlier keys and values too.

    Returns:
        `(float [batch, length, heads, head_dim], updated cache)`.
    """
    update = ops.cast(ops.stack((key, value), axis=1), cache.dtype)
    # In core ops, as TensorFlow Serving has no XLA, which `ops.slice_update` is.
    length, places = ops.shape(update)[3], ops.arange(ops.shape(cache)[3])
    is_here = (places >= cache_index) & (places < cache_index + length)
    if update.shape[3] == 1:
        cache = ops.where(ops.expand_dims(is_here, 1), update, cache)
    else:
        from_where = ops.where(is_here, places - cache_index, length + places)
        cache = ops.take(ops.concatenate((update, cache), axis=3), from_where, axis=3)
    key, value = cache[:, 0], cache[:, 1]
    positions = cache_index + ops.arange(ops.shape(query)[2])
    is_past = ops.arange(ops.shape(key)[2]) <= ops.expand_dims(positions, 1)  # (T, S)
    return _attention(query, key, value, is_past), cache


def _normalize(norm, x, training):
    if training:
        gain, bias = _tensors(norm.gamma, norm.beta)
        return attention.layer_norm(x, gain, bias, norm.epsilon)
    return norm(x)


def _activate(dense, x, training):
    """The dense layer of GELU(x)."""
    if training:
        return attention.gelu_dense(x, *_tensors(dense.kernel, dense.bias))
    return dense(keras.activations.gelu(x, approximate=True))


def _tensors(*variables):
    """The variables' values, in the dtype that the calling layer computes in."""
    return [ops.copy(variable) for variable in variables]


def _dense(units, dtype, name):
    return keras.layers.Dense(units, kernel_initializer=initializer(), dtype=dtype, name=name)


def _layer_norm(dtype, name):
    return keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, dtype=dtype, name=name)

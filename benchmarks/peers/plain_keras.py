"""GPT-1 from Keras's own layers, to compare the library's model with.

It is the same model, logits included: a test compares what both compute. It stays plain, also when
the library's model changes.
"""

import keras
from keras import ops

from benchmarks.harness.measured_models import SIZES
from benchmarks.harness.pretraining_steps import (
    compile_stock,
    fit_in_turns,
    peak_memory,
    random_ids,
    use_precision,
)


def train(turns, precision, mode, size, batch, length, steps):
    """Pre-trains the plain model on random ids."""
    import_memory = peak_memory()
    use_precision(precision)
    model = plain_gpt1(**SIZES[size])
    compile_stock(model, mode)
    fit_in_turns(turns, model, random_ids(size, batch, length + 1, steps))
    return {"import_memory": import_memory, "peak_memory": peak_memory()}


def plain_gpt1(
    vocabulary_size,
    num_layers,
    num_heads,
    hidden_dim,
    intermediate_dim,
    max_sequence_length,
    dropout=0.1,
):
    """Builds a model from `{"token_ids": int32 [batch, length]}` to logits.

    Arguments are those of `gpt1_keras.GPT1Backbone`, and the weights come in the order of the
    published checkpoints.
    """
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    tokens = keras.layers.ReversibleEmbedding(
        vocabulary_size, hidden_dim, embeddings_initializer=_initializer()
    )
    x = AddPositions(max_sequence_length)(tokens(token_ids))
    x = keras.layers.Dropout(dropout)(x)
    for _ in range(num_layers):
        attended = CausalSelfAttention(num_heads, dropout)(x)
        attended = keras.layers.Dropout(dropout)(attended)
        x = keras.layers.LayerNormalization(epsilon=1e-5)(x + attended)
        transformed = _dense(
            intermediate_dim, activation=lambda x: keras.activations.gelu(x, approximate=True)
        )(x)
        transformed = _dense(hidden_dim)(transformed)
        transformed = keras.layers.Dropout(dropout)(transformed)
        x = keras.layers.LayerNormalization(epsilon=1e-5)(x + transformed)
    return keras.Model({"token_ids": token_ids}, tokens(x, reverse=True))


class AddPositions(keras.layers.Layer):
    """Adds a learned embedding of each position."""

    def __init__(self, max_sequence_length, **kwargs):
        super().__init__(**kwargs)
        self.max_sequence_length = max_sequence_length

    def build(self, input_shape):
        self.positions = keras.layers.Embedding(
            self.max_sequence_length, input_shape[-1], embeddings_initializer=_initializer()
        )
        self.positions.build(input_shape)

    def call(self, x):
        return x + self.positions(ops.arange(ops.shape(x)[1]))


class CausalSelfAttention(keras.layers.Layer):
    """Attention with all its scores: softmax(q k^T / sqrt(d)) v, masked."""

    def __init__(self, num_heads, dropout, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout = keras.layers.Dropout(dropout)

    def build(self, input_shape):
        self.qkv = _dense(3 * input_shape[-1])
        self.output_projection = _dense(input_shape[-1])
        self.qkv.build(input_shape)
        self.output_projection.build(input_shape)

    def call(self, x, training=None):
        batch, length, hidden_dim = ops.shape(x)
        query, key, value = (
            ops.transpose(ops.reshape(part, (batch, length, self.num_heads, -1)), (0, 2, 1, 3))
            for part in ops.split(self.qkv(x), 3, axis=-1)
        )
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        scores = ops.cast(scores, "float32") / (hidden_dim // self.num_heads) ** 0.5
        causal = ops.arange(length) <= ops.expand_dims(ops.arange(length), 1)
        probabilities = ops.softmax(ops.where(causal, scores, -1e9))
        probabilities = ops.cast(probabilities, self.compute_dtype)
        probabilities = self.dropout(probabilities, training=training)
        x = ops.transpose(ops.matmul(probabilities, value), (0, 2, 1, 3))
        return self.output_projection(ops.reshape(x, (batch, length, hidden_dim)))


def _initializer():
    return keras.initializers.RandomNormal(stddev=0.02)


def _dense(units, activation=None):
    return keras.layers.Dense(units, activation=activation, kernel_initializer=_initializer())

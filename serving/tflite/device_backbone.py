"""The decoder in the shapes and ops that LiteRT runs fast, float32.

A graph for a device has fixed sizes, and yet a short text must not cost what a long one does. So
there is a graph for each of a few lengths, over the same weights, and the shortest that holds the
text runs. Masks are added, as LiteRT's kernel for selecting is slow.
"""

import functools

import tensorflow as tf
from keras import ops
from tensorflow.compiler.tf2xla.python.xla import dynamic_update_slice

from gpt1_keras.models.attention_scores import MASKED_SCORE

SHORTEST = 32  # tokens for which there is a graph of its own
_MOST_LENGTHS = 3  # as LiteRT keeps the weights of each, packed, in memory
LOGITS = "logits"  # in the name of the product that shares its weights with the token table


class Dense(tf.Module):
    """A dense layer's weights, as float32: x W + b.

    Args:
        layer: `keras.layers.Dense`; LoRA's share is merged into its kernel.
    """

    def __init__(self, layer):
        super().__init__()
        self._kernel, self._bias = _constant(layer.kernel), _constant(layer.bias)

    def __call__(self, x):
        """float `[n, in]` to `[n, out]`."""
        return tf.matmul(x, self._kernel) + self._bias


class DeviceBackbone(tf.Module):
    """Reads texts of at most `sequence_length` tokens.

    Args:
        backbone: `GPT1Backbone`.
        sequence_length: int, at most its context.

    Attributes:
        cache_shape: list of int, `[layers, 2, heads, places, head_dim]`: keys and values of a text.
    """

    def __init__(self, backbone, sequence_length):
        super().__init__()
        self.sequence_length = sequence_length
        self.vocabulary_size, self.hidden_dim = backbone.vocabulary_size, backbone.hidden_dim
        self._tokens = _constant(backbone.token_embedding.embeddings)
        self._positions = _constant(backbone.embedding.positions.embeddings[:sequence_length])
        self._blocks = [_Block(block) for block in backbone.blocks]
        heads = [backbone.num_heads, sequence_length, backbone.hidden_dim // backbone.num_heads]
        self.cache_shape = [len(self._blocks), 2, *heads]

    def states_at(self, token_ids, indices, positions=None, branches=None):
        """As `gpt1_keras.models.causal_backbone.CausalBackbone.states_at`: hidden states of some tokens.

        Args:
            token_ids: int32 `[rows, length]`.
            indices: int32 `[rows, n]`, where they are; of -1, what comes out means nothing.
            positions, branches: optional int32 `[rows, length]`, as `pad_choices` gives them.

        Returns:
            float `[rows, n, hidden_dim]`.
        """
        x = self._embed(token_ids, positions)

        def read(length):
            of_texts = None if branches is None else branches[:, :length]
            return self._read(x[:, :length], of_texts, indices)[0]

        return _within_shortest(read, indices, token_ids.shape[1])

    def last_state_and_cache(self, token_ids, num_tokens):
        """Reads one text, for `next_state` to go on from.

        Args:
            token_ids: int32 `[1, sequence_length]`.
            num_tokens: int32 `[1]`, from 1 on.

        Returns:
            `(state, cache)`: float `[1, hidden_dim]`, and a list of a pair of float
            `[1, heads, sequence_length, head_dim]` for each block, keys and values.
        """
        x, last = self._embed(token_ids), num_tokens[tf.newaxis] - 1

        def read(length):
            states, cache = self._read(x[:, :length], None, last)
            behind = [[0, 0], [0, 0], [0, self.sequence_length - length], [0, 0]]
            return states[:, 0], [tuple(tf.pad(x, behind) for x in pair) for pair in cache]

        return _within_shortest(read, last, self.sequence_length)

    def next_state(self, token_id, position, cache):
        """Reads one token more of one text.

        Args:
            token_id: int32 `[1]`.
            position: int32 `[1]`, how many tokens were read before; less than `sequence_length`.
            cache: as from `last_state_and_cache`.

        Returns:
            `(state, cache)`, likewise.
        """
        x = self._embed(token_id[tf.newaxis], position[tf.newaxis])[0]
        mask = _mask_between(position[tf.newaxis], None, self.sequence_length)
        new = []
        for block, past in zip(self._blocks, cache, strict=True):
            x, pair = block(x, mask, past=past, place=position[0])
            new.append(pair)
        return x, new

    def _read(self, x, branches, indices):
        """Reads texts of one length.

        Args:
            x: float `[rows, length, hidden_dim]`, the embedded tokens.
            branches, indices: as in `states_at`.

        Returns:
            states, float `[rows, n, hidden_dim]`, and keys and values of each block.
        """
        rows, length, width = x.shape
        x, asked = tf.reshape(x, [-1, width]), tf.maximum(indices, 0)
        # What lies behind the last matters to none, so it may see what it sees: were this not taken
        # from the input, the file would hold a matrix for each length.
        queries = tf.minimum(tf.range(length), tf.reduce_max(asked))
        mask = _mask_between(tf.broadcast_to(queries, [rows, length]), branches, length)
        cache = []
        for block in self._blocks[:-1]:
            x, pair = block(x, mask)
            cache.append(pair)
        # Of the last block, nothing but keys and values is needed of the other tokens.
        row = tf.reshape(tf.range(rows)[:, tf.newaxis] * length + asked, [-1])
        x, pair = self._blocks[-1](x, _mask_between(asked, branches, length), only=row)
        return tf.reshape(x, [*indices.shape, width]), [*cache, pair]

    def _embed(self, token_ids, positions=None):
        """int32 `[rows, length]` to float `[rows, length, hidden_dim]`."""
        x = _look_up(tf.convert_to_tensor(self._tokens), tf.reshape(token_ids, [-1]))
        x = tf.reshape(x, [*token_ids.shape, self.hidden_dim])
        if positions is None:
            return x + self._positions[: token_ids.shape[1]]
        return x + tf.gather(self._positions, positions)

    def logits(self, states):
        """The next token's, float `[n, vocabulary_size]`: states times the token table."""
        with tf.name_scope(LOGITS):
            return tf.matmul(states, self._tokens, transpose_b=True)


class _Block(tf.Module):
    def __init__(self, block):
        super().__init__()
        self._heads = block.num_heads
        self._qkv = Dense(block.attention.qkv)
        self._output = Dense(block.attention.output_projection)
        self._attention_norm = _Norm(block.attention_norm)
        self._expand, self._contract = Dense(block.expand), Dense(block.contract)
        self._feedforward_norm = _Norm(block.feedforward_norm)

    def __call__(self, x, mask, only=None, past=None, place=None):
        """Computes a block.

        Args:
            x: float `[rows * length, width]`.
            mask: float `[rows, 1, queries, keys]`, added to the scores.
            only: optional int32 `[n]`, rows of x: the only ones to go on with.
            past: optional pair of keys and values, which the new ones are written into.
            place: int32 scalar, where.

        Returns:
            float `[rows * length or n, width]`, and a pair of float `[rows, heads, keys,
            head_dim]`, keys and values.
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
                dynamic_update_slice(old, new, [0, 0, place, 0])
                for old, new in zip(past, (key, value))
            )
        scores = tf.matmul(query * query.shape[-1] ** -0.5, key, transpose_b=True) + mask
        attended = tf.matmul(tf.nn.softmax(scores), value)
        attended = tf.reshape(tf.transpose(attended, (0, 2, 1, 3)), [-1, width])
        x = self._attention_norm(x + self._output(attended))
        transformed = self._contract(tf.nn.gelu(self._expand(x), approximate=True))
        return self._feedforward_norm(x + transformed), (key, value)

    def _split_heads(self, x, rows):
        """`[rows * n, width]` to `[rows, heads, n, head_dim]`."""
        head_dim = x.shape[1] // self._heads
        return tf.transpose(tf.reshape(x, [rows, -1, self._heads, head_dim]), (0, 2, 1, 3))


class _Norm(tf.Module):
    def __init__(self, layer):
        super().__init__()
        self._gain, self._bias = _constant(layer.gamma), _constant(layer.beta)
        self._epsilon = layer.epsilon

    def __call__(self, x):
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
        return centred * tf.math.rsqrt(variance + self._epsilon) * self._gain + self._bias


def _within_shortest(read, indices, length):
    """What `read` makes of the fewest first tokens, of some numbers, that hold all the indices."""
    lengths = [length]
    while lengths[0] >= 2 * SHORTEST and len(lengths) < _MOST_LENGTHS:
        lengths.insert(0, lengths[0] // 2)
    last, read_enough = tf.reduce_max(indices), functools.partial(read, length)
    for shorter in reversed(lengths[:-1]):
        read_enough = functools.partial(
            tf.cond, last < shorter, functools.partial(read, shorter), read_enough
        )
    return read_enough()


def _mask_between(queries, branches, length):
    """What is added to scores, float `[rows, 1, n, length]`.

    Args:
        queries: int32 `[rows, n]`, the places of the tokens that attend.
        branches: as in `DeviceBackbone.states_at`.
        length: int, of the texts.
    """
    is_hidden = tf.range(length) > queries[:, tf.newaxis, :, tf.newaxis]
    if branches is not None:
        of_queries = tf.gather(branches, queries, batch_dims=1)[:, tf.newaxis, :, tf.newaxis]
        of_keys = branches[:, tf.newaxis, tf.newaxis]
        is_hidden |= (of_keys != 0) & (of_keys != of_queries)
    return tf.cast(is_hidden, tf.float32) * MASKED_SCORE


def _constant(weight):
    return tf.Variable(ops.convert_to_numpy(ops.cast(weight, "float32")), trainable=False)


# The converter knows this name, and makes of it LiteRT's op for embeddings, which can be quantized.
@tf.function(experimental_implements="embedding_matmul", autograph=False)
def _look_up(table, ids):
    return tf.gather(table, ids)

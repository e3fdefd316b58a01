"""The decoder in the shapes and ops that LiteRT runs fast, float32.

A graph for a device has fixed sizes, and yet a short text must not cost what a long one does. So
a text is read in chunks. After the first, which most texts do not exceed, a loop runs as often as
the text needs, over the same weights, and keeps keys and values. LiteRT copies what a loop keeps
several times a round, so that is little: not what only the last chunk would add. Masks are added,
as its kernel for selecting is slow.
"""

import tensorflow as tf
from keras import ops
from tensorflow.compiler.tf2xla.python.xla import dynamic_update_slice

CHUNK = 32  # tokens
LOGITS = "logits"  # in the name of the product that shares its weights with the token table
_HIDDEN = -1e9  # the score of what comes later


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


class Decoder(tf.Module):
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
        self._chunk = min(CHUNK, sequence_length)
        head_dim, places = backbone.hidden_dim // backbone.num_heads, self._places(sequence_length)
        self.cache_shape = [len(self._blocks), 2, backbone.num_heads, places, head_dim]

    def states_at(self, token_ids, indices, positions=None, branches=None):
        """As `gpt1_keras.decoder.Decoder.states_at`: hidden states of some tokens.

        Args:
            token_ids: int32 `[rows, length]`.
            indices: int32 `[rows, n]`, where they are; of -1, what comes out means nothing. What
                lies behind the last of all is not read.
            positions, branches: optional int32 `[rows, length]`, as `pad_choices` gives them.

        Returns:
            float `[rows, n, hidden_dim]`.
        """
        read_chunk, read_on = self._readers(token_ids, indices, positions, branches)
        states = tf.zeros([*indices.shape, self.hidden_dim])
        states, keys_and_values = read_chunk(tf.constant(0), states, None)
        length, chunk = token_ids.shape[1], self._chunk
        if length <= chunk:
            return states

        def rest():
            # Nothing is read after the last chunk, so it needs no places.
            behind = [[0, 0], [0, 0], [0, self._places(length) - 2 * chunk], [0, 0]]
            cache = [tuple(tf.pad(x, behind) for x in pair) for pair in keys_and_values]
            return read_on(chunk, states, cache)[0]

        return tf.cond(tf.reduce_max(indices) < chunk, lambda: states, rest)

    def last_state_and_cache(self, token_ids, num_tokens):
        """Reads one text, for `next_state` to go on from.

        Args:
            token_ids: int32 `[1, sequence_length]`.
            num_tokens: int32 `[1]`, from 1 on.

        Returns:
            `(state, cache)`: float `[1, hidden_dim]`, and a list of a pair of float
            `[1, heads, places, head_dim]` for each block, keys and values.
        """
        _, read_on = self._readers(token_ids, num_tokens[tf.newaxis] - 1)
        layers, _, heads, places, head_dim = self.cache_shape
        empty = tf.zeros([1, heads, places, head_dim])
        states, cache = read_on(0, tf.zeros([1, 1, self.hidden_dim]), [(empty, empty)] * layers)
        return states[:, 0], cache

    def _places(self, length):
        """So many tokens, rounded up to chunks."""
        return -(-length // self._chunk) * self._chunk

    def _readers(self, token_ids, indices, positions=None, branches=None):
        """What reads a chunk, and what reads all from there on; arguments as those of `states_at`.

        Returns:
            `(read_chunk, read_on)`. Both take a chunk's first place, the states found so far and
            keys and values of what came before, for `read_chunk` maybe None. The former gives
            states and the chunk's own keys and values, the latter states and all of them.
        """
        (rows, length), chunk = token_ids.shape, self._chunk
        if positions is None:
            positions = tf.tile([tf.range(length)], [rows, 1])

        def read_chunk(begin, states, cache):
            # What lies behind the end counts for nothing, but must have an id and a position.
            stretch = tf.minimum(begin + tf.range(chunk), length - 1)
            ids, at = (
                tf.reshape(tf.gather(each, stretch, axis=1), [-1])
                for each in (token_ids, positions)
            )
            x, new = self._read(ids, at, self._masks(begin, cache, branches, stretch), cache)
            last = indices - begin
            row = tf.range(rows)[:, tf.newaxis] * chunk + tf.clip_by_value(last, 0, chunk - 1)
            # What was read before keeps its state.
            is_new = tf.cast(last >= 0, tf.float32)[..., tf.newaxis]
            return states + is_new * (tf.gather(x, row) - states), new

        def read_on(begin, states, cache):
            def go_on(begin, states, cache):
                states, new = read_chunk(begin, states, cache)
                # Where the last chunk has no place, this overwrites what is not read again.
                return begin + chunk, states, _update(cache, new, begin)

            last = tf.reduce_max(indices)
            start = [tf.constant(begin), states, cache]
            return tf.while_loop(lambda begin, *_: begin <= last, go_on, start)[1:]

        return read_chunk, read_on

    def _masks(self, begin, cache, branches, stretch):
        """What is added to scores, of keys in the cache, if any, and of a chunk's own.

        Args:
            begin: int32 scalar, the chunk's first place.
            cache: as in `_read`.
            branches: as in `states_at`.
            stretch: int32 `[chunk]`, the chunk's places.

        Returns:
            list of float, to be broadcast to `[rows, heads, chunk, keys]`.
        """
        place = tf.range(self._chunk)
        masks = [_mask(place > place[:, tf.newaxis])]
        if cache is not None:
            places = cache[0][0].shape[2]
            masks.insert(0, _mask(tf.range(places) >= begin))
        if branches is None:
            return masks
        here = tf.gather(branches, stretch, axis=1)
        keys = [here] if cache is None else [branches[:, :places], here]
        return [
            mask + _mask((of_keys != 0) & (of_keys != here[:, tf.newaxis, :, tf.newaxis]))
            for mask, of_keys in zip(masks, (each[:, tf.newaxis, tf.newaxis] for each in keys))
        ]

    def next_state(self, token_id, position, cache):
        """Reads one token more of one text.

        Args:
            token_id: int32 `[1]`.
            position: int32 `[1]`, how many tokens were read before; less than `sequence_length`.
            cache: as from `last_state_and_cache`.

        Returns:
            `(state, cache)`, likewise.
        """
        masks = [_mask(tf.range(self.cache_shape[3]) >= position[0]), tf.zeros([1, 1])]
        state, new = self._read(token_id, position, masks, cache)
        return state, _update(cache, new, position[0])

    def logits(self, states):
        """The next token's, float `[n, vocabulary_size]`: states times the token table."""
        with tf.name_scope(LOGITS):
            return tf.matmul(states, self._tokens, transpose_b=True)

    def _read(self, ids, positions, masks, cache):
        """Reads the same stretch of each text.

        Args:
            ids, positions: int32 `[rows * length]`.
            masks: list of float, as `_masks` gives them.
            cache: keys and values of what came before, or None for nothing.

        Returns:
            float `[rows * length, hidden_dim]`, and the stretch's own keys and values.
        """
        x = _look_up(tf.convert_to_tensor(self._tokens), ids)
        x += tf.gather(self._positions, positions)
        keys_and_values = []
        for block, past in zip(self._blocks, cache or [None] * len(self._blocks), strict=True):
            x, new = block(x, masks, past)
            keys_and_values.append(new)
        return x, keys_and_values


class _Block(tf.Module):
    def __init__(self, block):
        super().__init__()
        self._heads = block.num_heads
        self._qkv = Dense(block.attention.qkv)
        self._output = Dense(block.attention.output_projection)
        self._attention_norm = _Norm(block.attention_norm)
        self._expand, self._contract = Dense(block.expand), Dense(block.contract)
        self._feedforward_norm = _Norm(block.feedforward_norm)

    def __call__(self, x, masks, past):
        attended, new = self._attend(x, masks, past)
        x = self._attention_norm(x + self._output(attended))
        transformed = self._contract(tf.nn.gelu(self._expand(x), approximate=True))
        return self._feedforward_norm(x + transformed), new

    def _attend(self, x, masks, past):
        """Attends to past keys and values, if any, and to new ones; gives the new ones too."""
        length, width = masks[-1].shape[-1], x.shape[1]
        head_dim = width // self._heads
        qkv = self._qkv(x)
        query, *new = (
            tf.transpose(
                tf.reshape(qkv[:, first : first + width], [-1, length, self._heads, head_dim]),
                (0, 2, 1, 3),
            )
            for first in range(0, 3 * width, width)
        )  # (rows, heads, length, head_dim)
        query *= head_dim**-0.5
        parts = [new] if past is None else [past, new]
        scores = [
            tf.matmul(query, key, transpose_b=True) + mask for (key, _), mask in zip(parts, masks)
        ]
        probabilities = tf.split(
            tf.nn.softmax(tf.concat(scores, axis=-1)), [each.shape[-1] for each in scores], axis=-1
        )
        attended = sum(tf.matmul(p, value) for p, (_, value) in zip(probabilities, parts))
        return tf.reshape(tf.transpose(attended, (0, 2, 1, 3)), [-1, width]), new


class _Norm(tf.Module):
    def __init__(self, layer):
        super().__init__()
        self._gain, self._bias = _constant(layer.gamma), _constant(layer.beta)
        self._epsilon = layer.epsilon

    def __call__(self, x):
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
        return centred * tf.math.rsqrt(variance + self._epsilon) * self._gain + self._bias


def _update(cache, new, begin):
    """A cache with new keys and values from a place on."""
    where = [0, 0, begin, 0]
    return [
        tuple(dynamic_update_slice(old, x, where) for old, x in zip(*pairs))
        for pairs in zip(cache, new, strict=True)
    ]


def _mask(is_hidden):
    return tf.cast(is_hidden, tf.float32) * _HIDDEN


def _constant(weight):
    return tf.Variable(ops.convert_to_numpy(ops.cast(weight, "float32")), trainable=False)


# The converter knows this name, and makes of it LiteRT's op for embeddings, which can be quantized.
@tf.function(experimental_implements="embedding_matmul", autograph=False)
def _look_up(table, ids):
    return tf.gather(table, ids)

"""The backbone in the shapes and ops that LiteRT runs fast, in float32.

A graph for a device has fixed shapes, and yet a short text must not cost what a long one does. So
there is a graph for each of a few lengths, over the same weights, and the shortest that holds the
text runs. Masks are added, as LiteRT's kernel for selecting is slow.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

import gpt1_keras
from gpt1_keras.models.attention_scores import MASKED_SCORE
from serving.tflite.device_block import DeviceBlock, KeysAndValues, constant

SHORTEST = 32  # tokens that have a graph of their own
_MAX_LENGTHS = 3  # as LiteRT keeps the weights of each, packed, in memory
LOGITS = "logits"  # in the name of the product that shares its weights with the token embeddings

Cache: TypeAlias = list[KeysAndValues]  # of each block


class DeviceBackbone(tf.Module):
    """Reads texts of at most `sequence_length` tokens.

    Args:
        backbone: whose weights to take.
        sequence_length: at most its context.

    Attributes:
        cache_shape: `[layers, 2, heads, length, head_dim]`: keys and values of a text.
    """

    def __init__(self, backbone: gpt1_keras.GPT1Backbone, sequence_length: int) -> None:
        super().__init__()
        self.sequence_length = sequence_length
        self.vocabulary_size, self.hidden_dim = backbone.vocabulary_size, backbone.hidden_dim
        self._tokens = constant(backbone.token_embedding.embeddings)
        self._positions = constant(backbone.embedding.positions.embeddings[:sequence_length])
        self._blocks = [DeviceBlock(block) for block in backbone.blocks]
        heads = [backbone.num_heads, sequence_length, backbone.hidden_dim // backbone.num_heads]
        self.cache_shape = [len(self._blocks), 2, *heads]

    def states_at(
        self,
        token_ids: tf.Tensor,
        indices: tf.Tensor,
        positions: tf.Tensor | None = None,
        branches: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Computes the hidden states of some tokens, as `CausalBackbone.states_at`.

        Args:
            token_ids: int32 `[rows, length]`.
            indices: int32 `[rows, n]`, of those tokens; the states at -1 mean nothing.
            positions, branches: int32 `[rows, length]`, as `pad_choices` returns them.

        Returns:
            float `[rows, n, hidden_dim]`.
        """
        x = self._embed(token_ids, positions)

        def read(length: int) -> tf.Tensor:
            of_texts = None if branches is None else branches[:, :length]
            return self._read(x[:, :length], of_texts, indices)[0]

        return _within_shortest(read, indices, token_ids.shape[1])

    def last_state_and_cache(
        self, token_ids: tf.Tensor, num_tokens: tf.Tensor
    ) -> tuple[tf.Tensor, Cache]:
        """Reads one text, which `next_state` can continue.

        Args:
            token_ids: int32 `[1, sequence_length]`.
            num_tokens: int32 `[1]`, at least 1.

        Returns:
            `(state, cache)`: float `[1, hidden_dim]`, and keys and values, float
            `[1, heads, sequence_length, head_dim]`, of each block.
        """
        x, last = self._embed(token_ids), num_tokens[tf.newaxis] - 1

        def read(length: int) -> tuple[tf.Tensor, Cache]:
            states, cache = self._read(x[:, :length], None, last)
            padding = [[0, 0], [0, 0], [0, self.sequence_length - length], [0, 0]]
            return states[:, 0], [tuple(tf.pad(x, padding) for x in pair) for pair in cache]

        return _within_shortest(read, last, self.sequence_length)

    def next_state(
        self, token_id: tf.Tensor, position: tf.Tensor, cache: Cache
    ) -> tuple[tf.Tensor, Cache]:
        """Reads one more token of one text.

        Args:
            token_id: int32 `[1]`.
            position: int32 `[1]`, how many tokens were read before; less than `sequence_length`.
            cache: as `last_state_and_cache` returns it.

        Returns:
            `(state, cache)`, likewise.
        """
        x = self._embed(token_id[tf.newaxis], position[tf.newaxis])[0]
        mask = _mask_between(position[tf.newaxis], None, self.sequence_length)
        new = []
        for block, past in zip(self._blocks, cache, strict=True):
            x, pair = block(x, mask, past=past, index=position[0])
            new.append(pair)
        return x, new

    def logits(self, states: tf.Tensor) -> tf.Tensor:
        """Returns the next token's logits, float `[n, vocabulary_size]` (equation 2)."""
        with tf.name_scope(LOGITS):
            return tf.matmul(states, self._tokens, transpose_b=True)

    def _read(
        self, x: tf.Tensor, branches: tf.Tensor | None, indices: tf.Tensor
    ) -> tuple[tf.Tensor, Cache]:
        """Reads texts of one length.

        Args:
            x: float `[rows, length, hidden_dim]`, the embedded tokens.
            branches, indices: as in `states_at`.

        Returns:
            States, float `[rows, n, hidden_dim]`, and keys and values of each block.
        """
        rows, length, width = x.shape
        x, asked = tf.reshape(x, [-1, width]), tf.maximum(indices, 0)
        # Nothing reads the tokens after the last index, so they may see what that one sees. Were
        # the mask not computed from the input, the file would hold a matrix for each length.
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

    def _embed(self, token_ids: tf.Tensor, positions: tf.Tensor | None = None) -> tf.Tensor:
        """int32 `[rows, length]` to float `[rows, length, hidden_dim]`."""
        x = _look_up(tf.convert_to_tensor(self._tokens), tf.reshape(token_ids, [-1]))
        x = tf.reshape(x, [*token_ids.shape, self.hidden_dim])
        if positions is None:
            return x + self._positions[: token_ids.shape[1]]
        return x + tf.gather(self._positions, positions)


def _within_shortest(read: Callable[[int], Any], indices: tf.Tensor, length: int) -> Any:
    """What `read` returns for the shortest of a few lengths that holds all the indices."""
    lengths = [length]
    while lengths[0] >= 2 * SHORTEST and len(lengths) < _MAX_LENGTHS:
        lengths.insert(0, lengths[0] // 2)
    last, read_enough = tf.reduce_max(indices), functools.partial(read, length)
    for shorter in reversed(lengths[:-1]):
        read_enough = functools.partial(
            tf.cond, last < shorter, functools.partial(read, shorter), read_enough
        )
    return read_enough()


def _mask_between(queries: tf.Tensor, branches: tf.Tensor | None, length: int) -> tf.Tensor:
    """What is added to attention scores, float `[rows, 1, n, length]`.

    Args:
        queries: int32 `[rows, n]`, the indices of the tokens that attend.
        branches: as in `DeviceBackbone.states_at`.
        length: of the texts.
    """
    is_hidden = tf.range(length) > queries[:, tf.newaxis, :, tf.newaxis]
    if branches is not None:
        of_queries = tf.gather(branches, queries, batch_dims=1)[:, tf.newaxis, :, tf.newaxis]
        of_keys = branches[:, tf.newaxis, tf.newaxis]
        is_hidden |= (of_keys != 0) & (of_keys != of_queries)
    return tf.cast(is_hidden, tf.float32) * MASKED_SCORE


# The converter knows this name, and makes of it LiteRT's op for embeddings, which can be quantized.
@tf.function(experimental_implements="embedding_matmul", autograph=False)
def _look_up(table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    return tf.gather(table, ids)

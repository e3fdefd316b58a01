"""The decoder of a language model's export, with and without a cache of earlier keys and values."""

from collections.abc import Sequence

import tensorflow as tf

from gpt1_keras.models.attention import attention, write_to_cache
from gpt1_keras.models.attention_scores import visible_keys
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from serving.export.decoder.attention import split_heads
from serving.export.decoder.base import ServedBlock
from serving.export.decoder.packed_decoder import padding_for


class CachedDecoder:
    """A backbone on sequences of one length, for each of whose tokens it returns hidden states.

    Args:
        backbone: whose embeddings are read.
        blocks: the backbone's blocks, as they are to be computed.
    """

    def __init__(self, backbone: GPT1Backbone, blocks: Sequence[ServedBlock]) -> None:
        self._embedding = backbone.embedding
        self._blocks = blocks

    def states(self, token_ids: tf.Tensor) -> tf.Tensor:
        """int32 `[batch, length]` to hidden states, float `[batch, length, hidden_dim]`."""
        return self._compute(token_ids, None, 0)[0]

    def states_with_cache(
        self, token_ids: tf.Tensor, cache: tf.Tensor, cache_update_index: int | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `GPT1CausalLM.states_with_cache`."""
        states, caches = self._compute(token_ids, cache, cache_update_index)
        return states, tf.stack(caches, axis=1)

    def _compute(
        self, token_ids: tf.Tensor, cache: tf.Tensor | None, first: int | tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        batch, length = tf.unstack(tf.shape(token_ids))
        padding = padding_for(self._blocks[0], batch * length)
        x = self._embedding(token_ids, start_index=first)
        width = x.shape[2]

        def as_rows(x: tf.Tensor) -> tf.Tensor:
            return tf.pad(tf.reshape(x, [-1, width]), [[0, padding], [0, 0]])

        def as_sequences(rows: tf.Tensor) -> tf.Tensor:
            return tf.reshape(rows[: batch * length], [batch, length, rows.shape[1]])

        x, caches = as_rows(x), []
        for number, block in enumerate(self._blocks):
            qkv = as_sequences(block.query_key_value(x))
            query, key, value = split_heads(qkv, block.num_heads)
            if cache is not None:
                caches.append(write_to_cache(cache[:, number], key, value, first))
                key, value = tf.unstack(caches[-1], axis=1)
            is_visible = visible_keys(length, tf.shape(key)[2], first_query=first)
            x = block.finish(as_rows(attention(query, key, value, is_visible)), x)
        return as_sequences(x), caches

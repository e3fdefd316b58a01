"""The decoder of a language model's export: reads texts, and then one token of each at a time."""

from typing import TypeAlias

import tensorflow as tf

from gpt1_keras.models.attention import masked_scores
from serving.export.decoder.packed_attention import gather_heads
from serving.export.decoder.packed_decoder import PackedDecoder
from serving.export.decoder.packing import Packing

# The keys and the values of each block, float `[batch, heads, columns, head_dim]`.
Cache: TypeAlias = list[tuple[tf.Tensor, tf.Tensor]]


class CachedDecoder(PackedDecoder):
    """A `PackedDecoder` that continues texts token by token.

    Keys and values are in two caches: a long one, which steps only read, and a short one, the
        window, which each step copies to write into it. In the long cache all texts end in the same
        column, so each text has its own first column.
    """

    def read(self, token_ids: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, Cache]:
        """Reads the prompts of texts.

        Args:
            token_ids: int32 `[batch, length]`.
            lengths: int32 `[batch]`, their numbers of tokens, at least 1.

        Returns:
            The hidden states of their last tokens, float `[batch, hidden_dim]`; and the cache, with
            as many columns as the longest text has tokens.
        """

        def read(packing: Packing) -> tuple[tf.Tensor, Cache]:
            packed = self._apply(self._blocks, packing, token_ids)
            longest = tf.reduce_max(lengths)
            starts = longest - lengths
            # Columns before a text repeat its first token, and are masked.
            index = tf.maximum(tf.range(longest) - starts[:, tf.newaxis], 0)
            rank = tf.math.invert_permutation(packing.order)[:, tf.newaxis]
            rows = packing.row_of(tf.broadcast_to(rank, tf.shape(index)), index)
            cache = []
            for block, qkv in zip(self._blocks, packed.projected):
                _, key, value = gather_heads(qkv, rows, block.num_heads)
                cache.append((key, value))
            return tf.gather(packed.x, rows[:, -1]), cache

        return self._pack([token_ids], lengths, read)

    def step(
        self,
        token_ids: tf.Tensor,
        positions: tf.Tensor,
        cache: Cache,
        starts: tf.Tensor,
        window: Cache,
        index: tf.Tensor,
    ) -> tuple[tf.Tensor, Cache]:
        """Reads one more token of each text.

        Args:
            token_ids: int32 `[batch]`.
            positions: int32 `[batch]`, their positions in their texts.
            cache: keys and values of earlier tokens.
            starts: int32 `[batch]`, the first column of each text in the cache.
            window: keys and values of the tokens after those in the cache.
            index: int32 scalar, the column of the window to write to. Later columns are not seen.

        Returns:
            The tokens' hidden states, float `[batch, hidden_dim]`; and the window.
        """
        batch = tf.size(token_ids)
        padding = [[0, self._padding(batch)]]
        columns = tf.range(tf.shape(window[0][0])[2])
        is_new = (columns == index)[:, tf.newaxis]
        in_cache = tf.range(tf.shape(cache[0][0])[2]) >= starts[:, tf.newaxis]
        in_cache = in_cache[:, tf.newaxis, tf.newaxis]
        token_ids, positions = tf.pad(token_ids, padding), tf.pad(positions, padding)
        x, windows = self._embed(token_ids, positions), []
        rows = tf.range(batch)[:, tf.newaxis]
        for block, block_cache, block_window in zip(self._blocks, cache, window):
            query, *new = gather_heads(block.project(x, positions), rows, block.num_heads)
            key, value = (tf.where(is_new, *pair) for pair in zip(new, block_window))
            windows.append((key, value))
            attended = _attend(query, (*block_cache, in_cache), (key, value, columns <= index))
            x = block.finish(tf.pad(attended, [*padding, [0, 0]]), x)
        return x[:batch], windows


def _attend(query: tf.Tensor, *parts: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """Like `gpt1_keras.models.attention.attention`, for keys in several tensors.

    Args:
        query: float `[batch, heads, 1, head_dim]`.
        *parts: keys and values, float `[batch, heads, keys, head_dim]`; and which are visible, bool
            that broadcasts to `[batch, heads, 1, keys]`.

    Returns:
        float `[batch, heads * head_dim]`.
    """
    query *= query.shape[-1] ** -0.5
    scores = [masked_scores(query, key, is_visible) for key, _, is_visible in parts]
    probabilities = tf.nn.softmax(tf.concat(scores, axis=-1))
    shares = tf.split(probabilities, [tf.shape(each)[-1] for each in scores], axis=-1)
    found = [tf.matmul(tf.cast(p, value.dtype), value) for p, (_, value, _) in zip(shares, parts)]
    return tf.reshape(tf.add_n(found), [-1, query.shape[1] * query.shape[3]])

"""The decoder of an export, for whole texts and for one more token of each at a time.

It computes nothing for padding outside attention.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import tensorflow as tf

from gpt1_keras.models.attention import masked_scores
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tasks.task import Task
from gpt1_keras.tokenization.graph_ops import not_inlined
from gpt1_keras.upstream import layers_of
from serving.export.decoder.int8 import Int8Block
from serving.export.decoder.packed_attention import PackedAttention, Packing, gather_heads

# The keys and the values of each block, float `[batch, heads, columns, head_dim]`.
Cache: TypeAlias = list[tuple[tf.Tensor, tf.Tensor]]


class ServedBlock(Protocol):
    """What a decoder needs of a `TransformerBlock` or an `Int8Block`, on rows without a batch."""

    num_heads: int

    def project(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Maps float `[rows, hidden_dim]` and int32 `[rows]` to `[rows, 3 * hidden_dim]`."""

    def finish(self, attended: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Maps attention's outputs and the block's input to its output, `[rows, hidden_dim]`."""


class Rows(NamedTuple):
    """The tokens of packed sequences, as the rows of matrices; the last rows are padding.

    Attributes:
        x: float `[rows, hidden_dim]`, the input of the next block.
        positions: int32 `[rows]`.
        projected: float `[rows, 3 * hidden_dim]`, the queries, keys and values of each applied
            block.
        attention: computes attention between the rows.
        padding: int32 scalar, the number of rows of padding.
    """

    x: tf.Tensor
    positions: tf.Tensor
    projected: list[tf.Tensor]
    attention: PackedAttention
    padding: tf.Tensor


class PackedDecoder:
    """A backbone that computes the tokens of all sequences at once, as the rows of one matrix.

    Only attention is padded, one group of about equally long sequences at a time. The last block
    computes only keys and values for tokens whose states are not needed. A sequence's states do not
    depend on other sequences.

    Args:
        backbone: a backbone for which `computes_by_blocks` is true.
        buckets: ascending lengths that bound which sequences are a group; see `Packing`.
        blocks: 8-bit blocks that replace the backbone's own.
    """

    def __init__(
        self,
        backbone: GPT1Backbone,
        buckets: Sequence[int],
        blocks: Sequence[Int8Block] | None = None,
    ) -> None:
        self._embedding = backbone.embedding
        self._buckets = buckets
        self._blocks: Sequence[ServedBlock] = blocks or backbone.blocks
        self._row_sizes = blocks[0].row_sizes if blocks else None

    def states_at(
        self,
        token_ids: tf.Tensor,
        indices: tf.Tensor,
        positions: tf.Tensor | None = None,
        branches: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the hidden states of some tokens, like `CausalBackbone.states_at`.

        Args:
            token_ids: int32 `[batch, length]`.
            indices: int32 `[batch, n]`, their indices. The result for an index of -1 is undefined.
            positions, branches: optional int32 `[batch, length]`.

        Returns:
            float `[batch, n, hidden_dim]`.
        """
        indices = tf.maximum(indices, 0)
        features = [each for each in (token_ids, positions, branches) if each is not None]
        # Tokens after the last index are not seen.
        lengths = tf.reduce_max(indices, axis=1) + 1
        return self._pack(
            features,
            lengths,
            lambda packing: self._states_at(packing, token_ids, indices, positions, branches),
        )

    def _states_at(
        self,
        packing: Packing,
        token_ids: tf.Tensor,
        indices: tf.Tensor,
        positions: tf.Tensor | None,
        branches: tf.Tensor | None,
    ) -> tf.Tensor:
        """Returns what `states_at` does; the indices are not negative."""
        indices = tf.gather(indices, packing.order)
        sequences = tf.range(tf.shape(indices)[0])[:, tf.newaxis]
        index_rows = packing.row_of(tf.broadcast_to(sequences, tf.shape(indices)), indices)
        *blocks, last = self._blocks
        rows = self._apply(blocks, packing, token_ids, positions, branches)
        padding = self._padding(tf.size(indices))
        qkv = last.project(rows.x, rows.positions)
        attended = rows.attention.attend_at(qkv, last.num_heads, padding, indices, index_rows)
        x = tf.gather(rows.x, tf.pad(tf.reshape(index_rows, [-1]), [[0, padding]]))
        states = last.finish(attended, x)[: tf.size(indices)]
        shape = tf.concat([tf.shape(indices), [states.shape[1]]], axis=0)
        states = tf.reshape(states, shape)  # [batch, n, hidden_dim]
        return tf.gather(states, tf.math.invert_permutation(packing.order))

    def states(self, token_ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Returns the hidden states of all tokens.

        Args:
            token_ids: int32 `[batch, length]`.
            lengths: int32 `[batch]`, the number of tokens of each sequence.

        Returns:
            float `[sum of lengths, hidden_dim]`, sequence after sequence.
        """

        def states_of(packing: Packing) -> tf.Tensor:
            x = self._apply(self._blocks, packing, token_ids).x
            is_token = tf.sequence_mask(lengths, tf.shape(token_ids)[1])
            sequences, columns = tf.unstack(tf.cast(tf.where(is_token), tf.int32), axis=1)
            rank = tf.math.invert_permutation(packing.order)
            return tf.gather(x, packing.row_of(tf.gather(rank, sequences), columns))

        # A sequence without tokens is computed with one.
        return self._pack([token_ids], tf.maximum(lengths, 1), states_of)

    def _pack(
        self,
        features: Sequence[tf.Tensor],
        lengths: tf.Tensor,
        compute: Callable[[Packing], Any],
    ) -> Any:
        """Returns what a function computes of the packed sequences; see `Packing.of`."""
        # Not inlined, so that products are fused where requests are merged; see
        # `serving.export.batching.batched`.
        return not_inlined(compute)(Packing.of(features, lengths, self._buckets))

    def _apply(
        self,
        blocks: Sequence[ServedBlock],
        packing: Packing,
        token_ids: tf.Tensor,
        positions: tf.Tensor | None = None,
        branches: tf.Tensor | None = None,
    ) -> Rows:
        """Embeds the tokens, int32 `[batch, length]`, as rows, and applies blocks to them."""
        sequences = tf.gather(packing.order, packing.sequences)
        flat_indices = sequences * tf.shape(token_ids)[1] + packing.columns
        padding = self._padding(tf.size(flat_indices))

        def pack(values: tf.Tensor) -> tf.Tensor:
            """Maps int32 `[batch, length]` to `[rows]`, without padding."""
            return tf.gather(tf.reshape(values, [-1]), flat_indices)

        attention = PackedAttention(packing, None if branches is None else pack(branches))
        row_positions = packing.columns if positions is None else pack(positions)
        row_positions = tf.pad(row_positions, [[0, padding]])
        x, projected = self._embed(tf.pad(pack(token_ids), [[0, padding]]), row_positions), []
        for block in blocks:
            projected.append(block.project(x, row_positions))
            x = block.finish(attention.attend(projected[-1], block.num_heads, padding), x)
        return Rows(x, row_positions, projected, attention, padding)

    def _embed(self, token_ids: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Maps int32 `[rows]` to float `[rows, hidden_dim]`."""
        return self._embedding(token_ids[tf.newaxis], positions=positions[tf.newaxis])[0]

    def _padding(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns how many rows to add, so that a block's matrices have few different sizes."""
        sizes = self._row_sizes
        if sizes is None:
            return tf.constant(0)
        beyond = -(-rows // sizes[-1]) * sizes[-1]  # a multiple of the largest
        return tf.gather([*sizes, beyond], tf.searchsorted(sizes, rows[tf.newaxis])[0]) - rows


def packed_outputs(
    model: Task, buckets: Sequence[int], blocks: Sequence[Int8Block] | None = None
) -> Callable[[dict[str, tf.Tensor]], tf.Tensor] | None:
    """Returns a task's `predict_outputs` with a packed decoder instead of its backbone.

    Returns:
        The function, or None if `predict_outputs` takes no `states_at` or the backbone is not
        packable.
    """
    takes_states = "states_at" in inspect.signature(model.predict_outputs).parameters
    if not (takes_states and is_packable(model.backbone)):
        return None
    decoder = PackedDecoder(model.backbone, buckets, blocks)
    return functools.partial(model.predict_outputs, states_at=decoder.states_at)


def is_packable(backbone: Any) -> bool:
    """Returns whether a backbone `computes_by_blocks`, in one float dtype."""
    if not computes_by_blocks(backbone):
        return False
    layers = [layer for block in backbone.blocks for layer in layers_of(block)]
    return (
        not any(layer.quantization_mode for layer in layers)
        and len({layer.compute_dtype for layer in (backbone.embedding, *layers)}) == 1
    )


def computes_by_blocks(backbone: Any) -> bool:
    """Returns whether a backbone is its embedding and then its blocks, cut at attention.

    This holds for `GPT1Backbone` and its subclasses, unless they override methods that combine
    these.
    """
    if not isinstance(backbone, GPT1Backbone) or not backbone.is_cut_at_attention:
        return False
    names = ("__init__", "call", "encode_branches", "states_at", "states_of_embeddings")
    return all(getattr(type(backbone), name) is getattr(GPT1Backbone, name) for name in names)


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

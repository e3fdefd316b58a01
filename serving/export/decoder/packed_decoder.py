"""The decoder of an export, which computes nothing for padding."""

import functools
import inspect
from collections.abc import Callable, Sequence

import tensorflow as tf

from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tasks.task import Task
from gpt1_keras.upstream import layers_of
from serving.export.decoder.attention import PackedAttention
from serving.export.decoder.base import ServedBlock
from serving.export.decoder.float_block import FloatBlock
from serving.export.decoder.packing import Packing


class PackedDecoder:
    """A backbone on the tokens of all sequences at once, as the rows of one matrix.

    Only attention is padded, a group of about equally long sequences at a time, and of the last
    block, only keys and values are computed for tokens that are not asked for. A sequence's answer
    does not depend on the others.

    Args:
        backbone: whose embeddings are read.
        buckets: ascending lengths that groups of sequences are padded to in attention.
        blocks: the backbone's blocks, as they are to be computed; in its own dtype by default.
    """

    def __init__(
        self,
        backbone: GPT1Backbone,
        buckets: Sequence[int],
        blocks: Sequence[ServedBlock] | None = None,
    ) -> None:
        self._embedding = backbone.embedding
        self._buckets = buckets
        self._blocks = blocks or [FloatBlock(block) for block in backbone.blocks]

    def states_at(
        self,
        token_ids: tf.Tensor,
        indices: tf.Tensor,
        positions: tf.Tensor | None = None,
        branches: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the hidden states of some tokens, as `CausalBackbone.states_at`.

        Args:
            token_ids: int32 `[batch, length]`.
            indices: int32 `[batch, n]`, their indices. Where it is -1, the result is undefined.
            positions, branches: optional int32 `[batch, length]`.

        Returns:
            float `[batch, n, hidden_dim]`.
        """
        asked = tf.maximum(indices, 0)
        features = [each for each in (token_ids, positions, branches) if each is not None]
        # What comes after the last of them is not seen.
        packing = Packing(features, tf.reduce_max(asked, axis=1) + 1, self._buckets)
        asked = tf.gather(asked, packing.order)
        sequences = tf.range(tf.shape(asked)[0])[:, tf.newaxis]
        asked_rows = packing.row_of(tf.broadcast_to(sequences, tf.shape(asked)), asked)
        x, attention = self._until(len(self._blocks) - 1, packing, token_ids, positions, branches)
        block, padding = self._blocks[-1], padding_for(self._blocks[-1], tf.size(asked))
        qkv = block.query_key_value(x)
        attended = attention.of_asked(qkv, block.num_heads, padding, asked, asked_rows)
        rows = tf.pad(tf.reshape(asked_rows, [-1]), [[0, padding]])
        x = block.finish(attended, tf.gather(x, rows))
        shape = tf.concat([tf.shape(asked), [x.shape[1]]], axis=0)
        states = tf.reshape(x[: tf.size(asked)], shape)
        return tf.gather(states, tf.math.invert_permutation(packing.order))

    def states_of(self, token_ids: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
        """Returns the hidden states of all tokens.

        Args:
            token_ids, padding_mask: int32 `[batch, length]`; the mask is 1 for each token, and then
                0.

        Returns:
            float `[tokens, hidden_dim]`, sequence after sequence.
        """
        # A sequence without tokens is computed as if it had one.
        lengths = tf.maximum(tf.reduce_sum(padding_mask, axis=1), 1)
        packing = Packing([token_ids], lengths, self._buckets)
        x, _ = self._until(len(self._blocks), packing, token_ids)
        sequences, columns = tf.unstack(tf.cast(tf.where(padding_mask > 0), tf.int32), axis=1)
        places = tf.math.invert_permutation(packing.order)
        return tf.gather(x, packing.row_of(tf.gather(places, sequences), columns))

    def _until(
        self,
        count: int,
        packing: Packing,
        token_ids: tf.Tensor,
        positions: tf.Tensor | None = None,
        branches: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, PackedAttention]:
        """The rows after the first blocks, so many; and what attends among them."""
        index = self._index(packing, token_ids)

        def pack(values: tf.Tensor) -> tf.Tensor:
            return tf.gather(tf.reshape(values, [-1]), index)

        padding = padding_for(self._blocks[0], tf.size(index))
        x = self._embed(
            pack(token_ids), packing.columns if positions is None else pack(positions), padding
        )
        attention = PackedAttention(packing, None if branches is None else pack(branches))
        for block in self._blocks[:count]:
            qkv = block.query_key_value(x)
            x = block.finish(attention.of_all(qkv, block.num_heads, padding), x)
        return x, attention

    def _index(self, packing: Packing, token_ids: tf.Tensor) -> tf.Tensor:
        """Where the rows' tokens are in the flat `token_ids`, int32 `[rows]`."""
        of_rows = tf.gather(packing.order, packing.sequences)
        return of_rows * tf.shape(token_ids)[1] + packing.columns

    def _embed(self, token_ids: tf.Tensor, positions: tf.Tensor, padding: tf.Tensor) -> tf.Tensor:
        """int32 `[rows]` to float `[rows + padding, hidden_dim]`."""
        ids, positions = (
            tf.pad(each, [[0, padding]])[tf.newaxis] for each in (token_ids, positions)
        )
        return self._embedding(ids, positions=positions)[0]


def padding_for(block: ServedBlock, rows: tf.Tensor) -> tf.Tensor:
    """How many rows are added to so many, so that a block's matrices have few sizes."""
    sizes = block.row_sizes
    if sizes is None:
        return tf.constant(0)
    beyond = -(-rows // sizes[-1]) * sizes[-1]  # there are many: multiples of the largest
    return tf.gather([*sizes, beyond], tf.searchsorted(sizes, rows[tf.newaxis])[0]) - rows


def packed_outputs(
    model: Task, buckets: Sequence[int], blocks: Sequence[ServedBlock] | None = None
) -> Callable[[dict[str, tf.Tensor]], tf.Tensor] | None:
    """Returns a task's `predict_outputs`, with a packed decoder in the place of its backbone.

    Args:
        model: the task.
        buckets, blocks: as in `PackedDecoder`.

    Returns:
        None for a task whose `predict_outputs` takes no `states_at`, and for a backbone that only
        Keras can compute: one of another class, with quantized layers, or of several dtypes.
    """
    takes_states = "states_at" in inspect.signature(model.predict_outputs).parameters
    if not (takes_states and is_packable(model.backbone)):
        return None
    decoder = PackedDecoder(model.backbone, buckets, blocks)
    return functools.partial(model.predict_outputs, states_at=decoder.states_at)


def is_packable(backbone: object) -> bool:
    """Tells whether blocks on rows compute what a backbone does: not of quantized layers, say."""
    if type(backbone) is not GPT1Backbone:  # a subclass may compute anything
        return False
    layers = [layer for block in backbone.blocks for layer in layers_of(block)]
    return (
        not any(layer.quantization_mode for layer in layers)
        and len({layer.compute_dtype for layer in (backbone.embedding, *layers)}) == 1
    )

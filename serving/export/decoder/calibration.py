"""The ranges of a model's activations on texts, which an 8-bit export keeps as constants."""

import dataclasses
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from gpt1_keras.models.transformer_block import TransformerBlock
from serving.export.decoder.float_block import dense, layer_norm


@dataclasses.dataclass(frozen=True)
class ChannelRanges:
    """The least and the greatest number of each channel, float32 `[channels]`."""

    least: np.ndarray
    greatest: np.ndarray


@dataclasses.dataclass(frozen=True)
class BlockRanges:
    """What the four matrices of a block multiply.

    Attributes:
        inputs: the block's inputs.
        attended: what attention returns.
        normalized: the outputs of the first layer normalisation.
        hidden: those of GELU.
    """

    inputs: ChannelRanges
    attended: ChannelRanges
    normalized: ChannelRanges
    hidden: ChannelRanges


class RecordingBlock(tf.Module):
    """A `ServedBlock` in its model's dtype that records the ranges of its activations.

    Args:
        block: of a `GPT1Backbone`.
    """

    row_sizes: Sequence[int] | None = None
    replaced: Sequence[keras.Variable] = ()

    def __init__(self, block: TransformerBlock) -> None:
        super().__init__()
        self.num_heads = block.num_heads
        object.__setattr__(self, "_block", block)
        width, wide = block.expand.kernel.shape
        self._inputs, self._attended, self._normalized = (_Recorder(width) for _ in range(3))
        self._hidden = _Recorder(wide)

    def query_key_value(self, x: tf.Tensor) -> tf.Tensor:
        return dense(self._block.attention.qkv, self._inputs.record(x))

    def finish(self, attended: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        block = self._block
        attended = self._attended.record(attended)
        x = layer_norm(block.attention_norm, x + dense(block.attention.output_projection, attended))
        hidden = tf.nn.gelu(dense(block.expand, self._normalized.record(x)), approximate=True)
        x = x + dense(block.contract, self._hidden.record(hidden))
        return layer_norm(block.feedforward_norm, x)

    def ranges(self) -> BlockRanges:
        """Returns what was recorded.

        Raises:
            ValueError: no token was read, or a number was infinite or none.
        """
        return BlockRanges(
            *(each.ranges() for each in (self._inputs, self._attended)),
            *(each.ranges() for each in (self._normalized, self._hidden)),
        )


class _Recorder(tf.Module):
    """The least and the greatest of what passes, by channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self._least = tf.Variable(tf.fill([channels], np.float32("inf")), trainable=False)
        self._greatest = tf.Variable(tf.fill([channels], -np.float32("inf")), trainable=False)

    def record(self, x: tf.Tensor) -> tf.Tensor:
        """Returns x, float `[rows, channels]`."""
        numbers = tf.cast(x, tf.float32)
        self._least.assign(tf.minimum(self._least, tf.reduce_min(numbers, axis=0)))
        self._greatest.assign(tf.maximum(self._greatest, tf.reduce_max(numbers, axis=0)))
        return x

    def ranges(self) -> ChannelRanges:
        least, greatest = self._least.numpy(), self._greatest.numpy()
        if not (np.isfinite(least).all() and np.isfinite(greatest).all()):
            raise ValueError(
                "The calibration's texts give no ranges of activations: expected finite numbers."
            )
        return ChannelRanges(least, greatest)

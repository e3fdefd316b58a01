"""Records the ranges of a model's activations on texts; 8-bit exports hold them as constants."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import keras
import numpy as np
import tensorflow as tf

from gpt1_keras.models.linear import observed_inputs
from gpt1_keras.models.transformer_block import TransformerBlock


@dataclasses.dataclass(frozen=True)
class ChannelRanges:
    """The smallest and the largest number of each channel, float32 `[channels]`."""

    least: np.ndarray
    greatest: np.ndarray


@dataclasses.dataclass(frozen=True)
class BlockRanges:
    """The ranges of what the four matrices of a block multiply.

    Attributes:
        inputs: the block's inputs.
        attended: the outputs of attention.
        normalized: the outputs of the first layer normalisation.
        hidden: the outputs of GELU.
    """

    inputs: ChannelRanges
    attended: ChannelRanges
    normalized: ChannelRanges
    hidden: ChannelRanges


class RangeRecorder:
    """Records the ranges of what the dense layers of blocks multiply.

    Args:
        blocks: the blocks of a `GPT1Backbone`.
    """

    def __init__(self, blocks: Sequence[TransformerBlock]) -> None:
        self._blocks = blocks
        self._by_layer = {
            id(layer): _ChannelRecorder(layer.kernel.shape[0])
            for block in blocks
            for layer in _dense_layers(block)
        }

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Makes functions that are traced in this context record ranges whenever they run."""
        with observed_inputs(self._record):
            yield

    def ranges(self) -> list[BlockRanges]:
        """Returns the recorded ranges of each block.

        Raises:
            ValueError: no token was read, or an activation was infinite or NaN.
        """
        return [
            BlockRanges(*(self._by_layer[id(layer)].ranges() for layer in _dense_layers(block)))
            for block in self._blocks
        ]

    def _record(self, layer: keras.layers.Dense, x: tf.Tensor) -> None:
        self._by_layer[id(layer)].record(x)


class _ChannelRecorder:
    """Records the smallest and the largest activation of each channel."""

    def __init__(self, channels: int) -> None:
        self._least = tf.Variable(tf.fill([channels], np.float32("inf")), trainable=False)
        self._greatest = tf.Variable(tf.fill([channels], -np.float32("inf")), trainable=False)

    def record(self, x: tf.Tensor) -> None:
        """Records float `[..., channels]`."""
        numbers = tf.reshape(tf.cast(x, tf.float32), [-1, x.shape[-1]])
        self._least.assign(tf.minimum(self._least, tf.reduce_min(numbers, axis=0)))
        self._greatest.assign(tf.maximum(self._greatest, tf.reduce_max(numbers, axis=0)))

    def ranges(self) -> ChannelRanges:
        least, greatest = self._least.numpy(), self._greatest.numpy()
        if not (np.isfinite(least).all() and np.isfinite(greatest).all()):
            raise ValueError(
                "The calibration's texts give no ranges of activations: expected finite numbers."
            )
        return ChannelRanges(least, greatest)


def _dense_layers(block: TransformerBlock) -> list[keras.layers.Dense]:
    """Returns the dense layers, in the order of the fields of `BlockRanges`."""
    attention = block.attention
    return [attention.qkv, attention.output_projection, block.expand, block.contract]

"""Records the ranges of a model's activations on texts; 8-bit exports hold them as constants."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import keras
import numpy as np
import tensorflow as tf

from gpt1_keras.models.layers import observed_inputs
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
    """Records the ranges of what the dense layers of blocks multiply."""

    def __init__(self, blocks: Sequence[TransformerBlock]) -> None:
        self._blocks = blocks
        # By layer, the smallest and the largest activation of each channel.
        self._limits = {
            id(layer): [
                tf.Variable(tf.fill([layer.kernel.shape[0]], np.float32(limit)), trainable=False)
                for limit in ("inf", "-inf")
            ]
            for block in blocks
            for layer in dense_layers(block)
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
            BlockRanges(*(self._ranges_of(layer) for layer in dense_layers(block)))
            for block in self._blocks
        ]

    def _ranges_of(self, layer: keras.layers.Dense) -> ChannelRanges:
        least, greatest = (each.numpy() for each in self._limits[id(layer)])
        if not (np.isfinite(least).all() and np.isfinite(greatest).all()):
            raise ValueError(
                "The calibration's texts give no ranges of activations: expected finite numbers."
            )
        return ChannelRanges(least, greatest)

    def _record(self, layer: keras.layers.Dense, x: tf.Tensor) -> None:
        """Records float `[..., channels]`."""
        least, greatest = self._limits[id(layer)]
        numbers = tf.reshape(tf.cast(x, tf.float32), [-1, x.shape[-1]])
        least.assign(tf.minimum(least, tf.reduce_min(numbers, axis=0)))
        greatest.assign(tf.maximum(greatest, tf.reduce_max(numbers, axis=0)))


def dense_layers(block: TransformerBlock) -> list[keras.layers.Dense]:
    """Returns the dense layers, in the order of the fields of `BlockRanges`."""
    attention = block.attention
    return [attention.qkv, attention.output_projection, block.expand, block.contract]

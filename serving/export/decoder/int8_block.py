"""A block that multiplies 8-bit numbers: weights, and activations in the ranges of a calibration.

Channels of activations differ: a few are many times as large as the others, and most are not
centred on zero. So each channel is centred and scaled before it is quantized, and the matrix after
it takes both back, which is exact in float (as SmoothQuant, Xiao et al., 2022). What attention
returns need not be touched for it: as it is a mean of values, the matrix of values can do that.
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from gpt1_keras.models.transformer_block import TransformerBlock, normalize
from serving.export.decoder.activation_ranges import BlockRanges, ChannelRanges
from serving.export.decoder.int8_product import Int8Linear, Range

# A product is compiled for each number of rows that it meets: these are four an octave, so that at
# most a fifth of the rows is padding. Beyond the last, its multiples.
ROW_SIZES = (8, 16, 24, 32, *(size << octave for octave in range(3, 10) for size in (5, 6, 7, 8)))
_SMOOTHING = 0.75  # how much of the channels' differences the weights take over


class Int8Block(tf.Module):
    """A `ServedBlock` whose four products are of 8-bit numbers; all else is float.

    Args:
        block: of a `GPT1Backbone`. Its layer normalisations are read, its matrices copied.
        ranges: of the activations that the matrices multiply.

    Attributes:
        row_sizes: sizes to which the decoder pads the rows, ascending.
        replaced: the model's matrices and biases, which the block does not read.
    """

    row_sizes: Sequence[int] = ROW_SIZES
    replaced: Sequence[keras.Variable]

    def __init__(self, block: TransformerBlock, ranges: BlockRanges) -> None:
        super().__init__()
        self.num_heads = block.num_heads
        attention = block.attention
        layers = (attention.qkv, attention.output_projection, block.expand, block.contract)
        untracked = {  # what an export need not hold, or holds as the model's
            "replaced": [weight for layer in layers for weight in layer.weights],
            "_norms": (block.attention_norm, block.feedforward_norm),
        }
        for name, value in untracked.items():
            object.__setattr__(self, name, value)

        (qkv, qkv_bias), (projection, projection_bias), expand, contract = map(_values, layers)
        attended = _Channels(projection, ranges.attended)
        width = projection.shape[0]
        scales = np.concatenate([np.ones(2 * width, np.float32), attended.scales])
        centres = np.concatenate([np.zeros(2 * width, np.float32), attended.centres])
        self._qkv = _CenteredLinear(qkv / scales, (qkv_bias - centres) / scales, ranges.inputs)
        self._projection = Int8Linear(
            *attended.taken_back(projection, projection_bias), attended.range
        )
        self._attended = attended.range
        self._expand = _CenteredLinear(*expand, ranges.normalized)
        self._hidden = Range.covering(ranges.hidden.least.min(), ranges.hidden.greatest.max())
        self._contract = Int8Linear(*contract, self._hidden)

    def project(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        return self._qkv.linear(self._qkv.quantize(x), dtype=x.dtype)

    def finish(self, attended: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        attention_norm, feedforward_norm = self._norms
        attended = self._attended.quantize(attended)
        x = normalize(attention_norm, self._projection(attended, addend=x, dtype=x.dtype))
        hidden = self._expand.linear.gelu(self._expand.quantize(x), self._hidden)
        return normalize(feedforward_norm, self._contract(hidden, addend=x, dtype=x.dtype))


class _Channels:
    """How channels of an activation are centred and scaled: (x - centres) / scales.

    Attributes:
        centres, scales: float `[channels]`.
        range: of what comes out.
    """

    def __init__(self, kernel: np.ndarray, ranges: ChannelRanges) -> None:
        self.centres = (ranges.greatest + ranges.least) / 2
        radii = np.maximum((ranges.greatest - ranges.least) / 2, 1e-6)
        weights = np.maximum(np.abs(kernel).max(axis=1), 1e-6)
        scales = radii**_SMOOTHING / weights ** (1 - _SMOOTHING)
        self.scales = scales / np.exp(np.log(scales).mean())
        greatest = (radii / self.scales).max()
        self.range = Range.covering(-greatest, greatest)

    def taken_back(self, kernel: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The kernel and bias with which a linear layer returns what it did."""
        return kernel * self.scales[:, np.newaxis], bias + self.centres @ kernel


class _CenteredLinear(tf.Module):
    """An 8-bit linear layer of activations whose channels it centres and scales."""

    def __init__(self, kernel: np.ndarray, bias: np.ndarray, ranges: ChannelRanges) -> None:
        super().__init__()
        channels = _Channels(kernel, ranges)
        self._factors = tf.Variable(1 / channels.scales, trainable=False)
        self._offsets = tf.Variable(-channels.centres / channels.scales, trainable=False)
        self.linear = Int8Linear(*channels.taken_back(kernel, bias), channels.range)

    def quantize(self, x: tf.Tensor) -> tf.Tensor:
        """float `[rows, inputs]` to what `linear` takes."""
        x = tf.cast(x, tf.float32) * self._factors + self._offsets
        return self.linear.input_range.quantize(x)


def _values(layer: keras.layers.Dense) -> tuple[np.ndarray, np.ndarray]:
    """A layer's kernel and bias, float32."""
    kernel, bias = (
        keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32"))
        for weight in (layer.kernel, layer.bias)
    )
    return kernel, bias

"""A block that multiplies 8-bit numbers: weights, and activations in calibrated ranges.

Channels of activations differ: a few are many times as large as the others, and most are not
centred on zero. So each channel is centred and scaled before it is quantized, and the next matrix
undoes both, which is exact in float (as in SmoothQuant, Xiao et al., 2022). For what attention
returns, the matrix of the values centres and scales, as each output of attention is a mean of
values.
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from gpt1_keras.models.transformer_block import TransformerBlock, normalize
from serving.export.decoder.activation_ranges import BlockRanges, ChannelRanges, dense_layers
from serving.export.decoder.int8_product import Int8Linear, Range

# oneDNN compiles a product for each number of rows. With these four sizes between powers of two, at
# most a fifth of the rows is padding. Larger batches are padded to multiples of the last size.
ROW_SIZES = (8, 16, 24, 32, *(size << octave for octave in range(3, 10) for size in (5, 6, 7, 8)))
_SMOOTHING = 0.75  # the share of the channels' differences that moves into the weights


class Int8Block(tf.Module):
    """A block whose four products are of 8-bit numbers; the rest is float.

    Args:
        block: a block of a `GPT1Backbone`. Its layer normalisations are used; its matrices are
            copied.
        ranges: the ranges of the activations that the matrices multiply.

    Attributes:
        row_sizes: sizes to which the decoder pads the rows, ascending.
        replaced: the model's matrices and biases, in place of which the block has its own.
    """

    row_sizes: Sequence[int] = ROW_SIZES
    replaced: Sequence[keras.Variable]

    def __init__(self, block: TransformerBlock, ranges: BlockRanges) -> None:
        super().__init__()
        self.num_heads = block.num_heads
        layers = dense_layers(block)
        untracked = {  # an export need not hold these, or holds them as the model's
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
    """Centres and scales channels of an activation: (x - centres) / scales.

    Attributes:
        centres, scales: float `[channels]`.
        range: the range of the result.
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
        """Returns the kernel and bias of a linear layer that undo the centring and scaling."""
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
        """Quantizes float `[rows, inputs]` for `linear`."""
        x = tf.cast(x, tf.float32) * self._factors + self._offsets
        return self.linear.input_range.quantize(x)


def _values(layer: keras.layers.Dense) -> tuple[np.ndarray, np.ndarray]:
    """Returns a layer's kernel and bias, float32."""
    kernel, bias = (
        keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32"))
        for weight in (layer.kernel, layer.bias)
    )
    return kernel, bias

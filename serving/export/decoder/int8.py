"""Products in 8 bits: where they run, the ranges of activations, one product, a block of them."""

import dataclasses
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue

from gpt1_keras.models.layers import observed_inputs
from gpt1_keras.models.transformer_block import TransformerBlock, normalize

_LARGEST = 127.0  # of a weight; the smallest is -127
_LEVELS = 255.0  # steps of an activation

REQUIREMENT = "TensorFlow with oneDNN (Linux on x86-64)"
_SIZE = 64
# oneDNN compiles a product for each number of rows. With these four sizes between powers of two, at
# most a fifth of the rows is padding. Larger batches are padded to multiples of the last size.
ROW_SIZES = (8, 16, 24, 32, *(size << octave for octave in range(3, 10) for size in (5, 6, 7, 8)))
_MORE_UNITS = 1 / 64  # of a hidden layer: the share that splitting may add
_LIMITS = 256  # of outputs, from which splitting chooses
_SMOOTHING = 0.75  # the share of the channels' differences that moves into the weights


@dataclasses.dataclass(frozen=True)
class ChannelRanges:
    """The smallest and the largest number of each channel, float32 `[channels]`."""

    least: np.ndarray
    greatest: np.ndarray


@dataclasses.dataclass(frozen=True)
class BlockRanges:
    """The ranges of the inputs of a block's four matrices.

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
    """Records the ranges of the inputs of blocks' dense layers."""

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


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that 8 bits stand for: `scale * (q - zero_point)`, q from 0 to 255.

    The zero point is a whole number, so all of TensorFlow's kernels round alike, and zero is exact.
    """

    scale: float
    zero_point: int

    @classmethod
    def covering(cls, least: float, greatest: float) -> "Range":
        """Returns the finest range that covers zero and both numbers, up to half a step."""
        least, greatest = min(least, 0.0), max(greatest, 0.0)
        scale = max(greatest - least, 1e-6) / _LEVELS
        return cls(scale, round(-least / scale))

    @property
    def least(self) -> float:
        """The number that 0 stands for."""
        return -self.scale * self.zero_point

    @property
    def greatest(self) -> float:
        """The number that 255 stands for."""
        return self.scale * (_LEVELS - self.zero_point)

    def quantize(self, x: tf.Tensor) -> tf.Tensor:
        """Rounds float to `quint8`; numbers outside the range become its ends.

        In this mode TensorFlow's own kernel runs, not oneDNN's, which is prepared anew for each
        call. That takes longer than to quantize a short text.
        """
        return tf.raw_ops.QuantizeV2(
            input=tf.cast(x, tf.float32),
            min_range=self.least,
            max_range=self.greatest,
            T=tf.quint8,
            mode="MIN_COMBINED",
            ensure_minimum_range=0.0,
        ).output


class Int8Linear(tf.Module):
    """A linear layer whose products are of 8-bit numbers.

    Args:
        kernel: float `[inputs, outputs]`.
        bias: float `[outputs]`.
        input_range: the range of the activations that the kernel multiplies.
    """

    def __init__(self, kernel: np.ndarray, bias: np.ndarray, input_range: Range) -> None:
        super().__init__()
        self.input_range = input_range
        limits = np.maximum(_limits(kernel), np.finfo(np.float32).tiny)
        values = np.round(kernel / limits * _LARGEST).astype(np.int8)
        self._values = tf.Variable(values, trainable=False)
        # oneDNN finds compiled products by the address of their scales, so these must not move.
        self._limits, self._bias = limits.astype(np.float32), bias.astype(np.float32)

    def __call__(self, x: tf.Tensor, addend: tf.Tensor | None = None) -> tf.Tensor:
        """Maps `quint8` `[rows, inputs]` to float32 `[rows, outputs]`, and adds `addend`.

        Where a processor has no bfloat16, a product that returned it would end the process.
        """
        if addend is None:
            return self._product(x, ["BiasAdd", "Dequantize"])
        addend = tf.cast(addend, tf.float32)
        return self._product(x, ["BiasAdd", "Add", "Dequantize"], addend=addend)

    def gelu(self, x: tf.Tensor, output_range: Range) -> tf.Tensor:
        """Maps `quint8` `[rows, inputs]` to GELU of the output, `quint8` in `output_range`."""
        ops = ["BiasAdd", "GeluApproximate", "Requantize"]
        return self._product(x, ops, output_range=output_range)

    def _product(
        self,
        x: tf.Tensor,
        fused_ops: list[str],
        addend: tf.Tensor | None = None,
        output_range: Range | None = None,
    ) -> tf.Tensor:
        tensors = [x, tf.bitcast(self._values, tf.qint8), tf.constant(self._bias)]
        if addend is not None:
            tensors.append(addend)
        limits = tf.constant(self._limits)
        ranges = [self.input_range.least, self.input_range.greatest, limits, limits]
        dtype, also = tf.float32, []
        if output_range is not None:
            ranges += [output_range.least, output_range.greatest]
            dtype, also = tf.quint8, [tf.float32] * 2  # the output's range, which we know
        ranges = [tf.convert_to_tensor(each, tf.float32) for each in ranges]
        attributes = {
            "Tdevice_inputs": _types(*(tensor.dtype for tensor in tensors)),
            "Thost_inputs": _types(*(tensor.dtype for tensor in ranges)),
            "Tdevice_outputs": _types(dtype),
            "Thost_outputs": _types(*also),
            "T1": _type(tf.quint8),
            "T2": _type(tf.qint8),
            "Tbias": _type(tf.float32),
            "U": _type(tf.float32),
            "Tout": _type(dtype),
            "fused_ops": AttrValue(list=AttrValue.ListValue(s=[op.encode() for op in fused_ops])),
            "input_quant_mode": AttrValue(s=b"MIN_FIRST"),
            "output_quant_mode": AttrValue(s=b"MIN_FIRST"),
        }
        # The op has no Python function. It needs a name, as no node's name begins with an
        # underscore.
        operation: Any = tf.compat.v1.get_default_graph().create_op(
            *("_QuantizedMatMul", [*tensors, *ranges], [dtype, *also]),
            name="quantized_product",
            attrs=attributes,
        )
        return operation.outputs[0]


def _limits(kernel: np.ndarray) -> np.ndarray:
    """Returns what the largest weight of each column of `[inputs, outputs]` stands for.

    Without VNNI, processors add the products of two neighbours in 16 bits, where 2 * 255 * 127
    saturates. So two neighbours add up to at most 127 too, 128 once rounded: 255 * 128 fits.
    """
    neighbours = np.add.reduceat(kernel, np.arange(0, len(kernel), 2), axis=0)
    return np.maximum(np.abs(kernel).max(axis=0), np.abs(neighbours).max(axis=0))


def _type(dtype: tf.DType) -> AttrValue:
    return AttrValue(type=dtype.as_datatype_enum)


def _types(*dtypes: tf.DType) -> AttrValue:
    return AttrValue(list=AttrValue.ListValue(type=[each.as_datatype_enum for each in dtypes]))


def check_this_machine() -> None:
    """Raises ValueError if 8-bit products are missing, or not exact, on this machine."""
    largest = _largest_product()

    @tf.function(autograph=False, jit_compile=False)
    def run() -> None:
        _assert_exact(largest)

    try:
        run()
    except tf.errors.OpError as error:
        raise ValueError(
            f"Products of 8-bit numbers need {REQUIREMENT}; those of this machine are missing or "
            "not exact. Without `int8`, an export runs everywhere; with `int8_storage`, it is as "
            "small."
        ) from error


class ExactProducts(tf.saved_model.experimental.TrackableResource):
    """Makes loading an export fail where its 8-bit products would not be exact."""

    def __init__(self) -> None:
        super().__init__()
        self._product = _largest_product()
        self._initialize()

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        return {**super()._trackable_children(save_type, **kwargs), "product": self._product}

    # --- TensorFlow calls these when it saves and loads ---

    def _create_resource(self) -> tf.Tensor:
        # In one process, variables of the same name are one variable.
        name = f"exact_products_{uuid.uuid4().hex}"
        return tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name=name)

    def _initialize(self) -> None:
        if (
            tf.executing_eagerly()
        ):  # `check_this_machine` has been called, and this op needs a graph
            is_exact = tf.constant(True)
        else:
            with tf.control_dependencies([_assert_exact(self._product)]):
                is_exact = tf.constant(True)
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=is_exact)


def _largest_product() -> Int8Linear:
    """Returns a layer whose neighbouring weights add up to the most: 127 and 0, or 64 and 64.

    Other pairs of it add up to more, such as 127 and 127.
    """
    patterns = np.array([[127.0, 0.0, 0.0, 127.0], [63.5, 63.5, 63.5, 63.5]], np.float32)
    kernel = np.tile(patterns, [_SIZE // 2, _SIZE // 4]).T
    return Int8Linear(kernel, np.zeros(_SIZE, np.float32), Range(1.0, 0))


def _assert_exact(linear: Int8Linear) -> tf.Operation:
    """Multiplies the largest 8-bit numbers, and asserts that the sums are exact."""
    product = linear(tf.bitcast(tf.fill([_SIZE, _SIZE], tf.constant(255, tf.uint8)), tf.quint8))
    expected = tf.constant([[127.0, 128.0] * (_SIZE // 2)]) * (255.0 * _SIZE / 2)
    return tf.debugging.Assert(
        tf.reduce_all(product == expected),
        [
            "8-bit numbers are not multiplied exactly here. Received a product of:",
            product[0, 0],
        ],
    )


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
        limit, units, offsets = _split(ranges.hidden.greatest)
        kernel, bias = expand
        self._expand = _CenteredLinear(kernel[:, units], bias[units] - offsets, ranges.normalized)
        self._hidden = Range.covering(ranges.hidden.least.min(), limit)
        kernel, bias = contract
        self._contract = Int8Linear(kernel[units], bias, self._hidden)

    def project(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        return tf.cast(self._qkv.linear(self._qkv.quantize(x)), x.dtype)

    def finish(self, attended: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        attention_norm, feedforward_norm = self._norms
        attended = self._attended.quantize(attended)
        x = normalize(attention_norm, self._projection(attended, addend=x))
        hidden = self._expand.linear.gelu(self._expand.quantize(x), self._hidden)
        return normalize(feedforward_norm, self._contract(hidden, addend=x))


def _split(greatest: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Splits the few units of a hidden layer whose outputs are by far the largest.

    A unit that reaches 72 beside others that reach 3 would leave these few of the 255 steps. So it
    becomes several, each with a part of its output: GELU(x) is nearly the sum of what GELU(x),
    GELU(x - limit), GELU(x - 2 limit) ... have below the limit, above which 8 bits saturate.

    Args:
        greatest: the largest output of each unit, float `[units]`.

    Returns:
        The limit; the unit that each one of the new layer is a part of; and what is subtracted from
        its input.
    """
    limits = np.linspace(max(greatest.max(), 1e-6), 0.0, _LIMITS, endpoint=False)
    parts = np.maximum(np.ceil(greatest / limits[:, np.newaxis]), 1).astype(int)
    chosen = np.flatnonzero(parts.sum(axis=1) <= len(greatest) * (1 + _MORE_UNITS))[-1]
    if chosen < _LIMITS / 2:  # it would gain less than it costs where the parts meet
        chosen = 0
    units = np.repeat(np.arange(len(greatest)), parts[chosen])
    first = np.cumsum(parts[chosen]) - parts[chosen]
    offsets = (np.arange(len(units)) - first[units]) * limits[chosen]
    return limits[chosen], units, offsets


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
        self._factors = (1 / channels.scales).astype(np.float32)
        self._offsets = (-channels.centres / channels.scales).astype(np.float32)
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

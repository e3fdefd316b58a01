"""Matrix products of 8-bit numbers, by an op that TensorFlow has through oneDNN.

Activations are `quint8`, x = scale * (q - zero_point), and weights are `qint8`, with a scale for
each column: processors have an instruction for products of unsigned and signed numbers.
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue

_LARGEST = 127.0  # of a weight; the smallest is -127
_LEVELS = 255.0  # steps of an activation
_QUANTIZED = (tf.quint8, tf.qint8)


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
        limits = np.maximum(np.abs(kernel).max(axis=0), np.finfo(np.float32).tiny)
        values = np.round(kernel / limits * _LARGEST).astype(np.int8)
        self._values = tf.Variable(values, trainable=False)
        # oneDNN finds compiled products by the address of their scales, so these must not move.
        self._limits = tf.Variable(limits.astype(np.float32), trainable=False)
        self._bias = tf.Variable(bias.astype(np.float32), trainable=False)

    def __call__(
        self,
        x: tf.Tensor,
        addend: tf.Tensor | None = None,
        dtype: tf.DType = tf.float32,
    ) -> tf.Tensor:
        """Maps `quint8` `[rows, inputs]` to float `[rows, outputs]`, and adds `addend`."""
        ops = ["BiasAdd", "Dequantize"] if addend is None else ["BiasAdd", "Add", "Dequantize"]
        return self._product(x, ops, dtype, addend=addend)

    def gelu(self, x: tf.Tensor, output_range: Range) -> tf.Tensor:
        """Maps `quint8` `[rows, inputs]` to GELU of the output, `quint8` in `output_range`."""
        ops = ["BiasAdd", "GeluApproximate", "Requantize"]
        return self._product(x, ops, tf.quint8, output_range=output_range)

    def _product(
        self,
        x: tf.Tensor,
        fused_ops: list[str],
        dtype: tf.DType,
        addend: tf.Tensor | None = None,
        output_range: Range | None = None,
    ) -> tf.Tensor:
        tensors = [x, tf.bitcast(self._values, tf.qint8), tf.convert_to_tensor(self._bias)]
        if addend is not None:
            tensors.append(addend)
        limits = tf.convert_to_tensor(self._limits)
        ranges = [self.input_range.least, self.input_range.greatest, limits, limits]
        if output_range is not None:
            ranges += [output_range.least, output_range.greatest]
        ranges = [tf.convert_to_tensor(each, tf.float32) for each in ranges]
        also = [tf.float32] * 2 if dtype in _QUANTIZED else []  # the output's range, which we know
        attributes = {
            "Tdevice_inputs": _types(*(tensor.dtype for tensor in tensors)),
            "Thost_inputs": _types(*(tensor.dtype for tensor in ranges)),
            "Tdevice_outputs": _types(dtype),
            "Thost_outputs": _types(*also),
            "T1": _type(tf.quint8),
            "T2": _type(tf.qint8),
            "Tbias": _type(tf.float32),
            "U": _type(tf.float32 if addend is None else addend.dtype),
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


def _type(dtype: tf.DType) -> AttrValue:
    return AttrValue(type=dtype.as_datatype_enum)


def _types(*dtypes: tf.DType) -> AttrValue:
    return AttrValue(list=AttrValue.ListValue(type=[each.as_datatype_enum for each in dtypes]))

"""The weights of an export, which may be stored in 8 bits: a quarter of the size."""

import uuid
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from serving.export.decoder.int8 import ExactProducts
from serving.export.signature import ExportSpec

_LARGEST = 127.0


class StoredWeights(tf.Module):
    """The weights that a SavedModel's signatures read.

    The model itself is not an attribute: TensorFlow would track it, and store all weights twice.
    Matrices that `spec.blocks` replace are not stored, and neither are `vectors`.

    Args:
        spec: what the export is made of. With `int8`, its model's matrices are rounded in place.

    Attributes:
        vectors: a context manager in which signatures have to be traced.
    """

    def __init__(self, spec: ExportSpec) -> None:
        super().__init__()
        self._blocks = spec.blocks
        replaced = {id(weight) for block in spec.blocks or () for weight in block.replaced}
        self.vectors = ConstantVectors(spec.model.weights)
        if replaced:
            self._exact_products = ExactProducts()

        def is_rounded(weight: keras.Variable) -> bool:
            # If the blocks have their own 8-bit matrices, the other kernels stay in float.
            is_table = weight.name == "embeddings"
            return spec.int8 and len(weight.shape) == 2 and (is_table or not replaced)

        self._variables = [
            QuantizedVariable(weight.value, axis=1 if weight.name == "embeddings" else 0)
            if is_rounded(weight)
            else weight.value
            for weight in spec.model.weights
            if id(weight) not in replaced and weight not in self.vectors
        ]


class ConstantVectors(keras.StatelessScope):
    """Makes the functions that are traced in it hold the vectors among some weights as constants.

    Of one run's nodes for a short text, half would read variables, most of them biases, gammas and
    betas. A vector of zeros stays a variable: as a constant, TensorFlow would leave out its
    addition, and then not fuse the product before it with the GELU or the residual after it.

    Args:
        weights: list of `keras.Variable`.
    """

    def __init__(self, weights: Sequence[keras.Variable]) -> None:
        super().__init__()
        values = {id(each): np.asarray(each.value) for each in weights if len(each.shape) == 1}
        self._values = {key: value for key, value in values.items() if value.any()}

    def __contains__(self, weight: keras.Variable) -> bool:
        return id(weight) in self._values

    def get_current_value(self, variable: keras.Variable) -> tf.Tensor | None:
        """Returns the constant, in the graph that is being traced. Keras calls this."""
        value = self._values.get(id(variable))
        return None if value is None else tf.constant(value)


class QuantizedVariable(tf.saved_model.experimental.TrackableResource):
    """A variable that an export holds as int8 values, with a scale for each row or column.

    The variable is computed from these once, when the export is loaded. So it takes as much memory
    as before, and a request as much time. The values are symmetric: the largest of a row or column
    is 127.

    Args:
        variable: float `tf.Variable` `[rows, columns]`, which signatures read; it is rounded to the
            values in the file.
        axis: 1 for a scale for each row, as for embeddings; 0 for each column, as for kernels.
    """

    def __init__(self, variable: tf.Variable, axis: int) -> None:
        super().__init__()
        self._dtype, self._shape = variable.dtype, variable.shape
        self._resource_handle = variable.handle  # signatures captured it, or will
        weights = tf.cast(variable, tf.float32)
        scales = tf.reduce_max(tf.abs(weights), axis, keepdims=True) / _LARGEST
        values = tf.round(tf.math.divide_no_nan(weights, scales))
        self._scales = tf.Variable(scales, trainable=False)
        self._values = tf.Variable(tf.cast(values, tf.int8), trainable=False)
        self._initialize()

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        children = super()._trackable_children(save_type, **kwargs)
        return {**children, "scales": self._scales, "values": self._values}

    # --- TensorFlow calls these when it saves and loads ---

    def _create_resource(self) -> tf.Tensor:
        # In one process, variables of the same name are one variable.
        name = f"dequantized_{uuid.uuid4().hex}"
        return tf.raw_ops.VarHandleOp(dtype=self._dtype, shape=self._shape, shared_name=name)

    def _initialize(self) -> None:
        weights = tf.cast(self._values, tf.float32) * self._scales
        tf.raw_ops.AssignVariableOp(
            resource=self.resource_handle, value=tf.cast(weights, self._dtype)
        )

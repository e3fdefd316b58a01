"""Weights in 8 bits: a quarter of the file."""

import uuid

import tensorflow as tf

_LARGEST = 127.0


def saved_variables(model, int8=False):
    """What an export has to hold of a model's weights, a list of trackable objects.

    Args:
        model: a built Keras model.
        int8: bool, matrices in 8 bits. They are rounded in the model, too.
    """
    return [
        QuantizedVariable(weight.value, axis=1 if weight.name == "embeddings" else 0)
        if int8 and len(weight.shape) == 2
        else weight.value
        for weight in model.weights
    ]


class QuantizedVariable(tf.saved_model.experimental.TrackableResource):
    """A variable that an export holds as int8 values, with a scale for each row or column.

    The variable is made of them once, when an export is loaded, and is in memory as it was; so a
    request costs what it did. The values are symmetric: the largest of a row or column is 127.

    Args:
        variable: float `tf.Variable` `[rows, columns]`, which signatures read; it is rounded to
            what the file holds.
        axis: int, 1 for a scale for each row, as of embeddings; 0 for each column, as of kernels.
    """

    def __init__(self, variable, axis):
        super().__init__()
        self._dtype, self._shape = variable.dtype, variable.shape
        self._resource_handle = variable.handle  # signatures captured it, or will
        weights = tf.cast(variable, tf.float32)
        scales = tf.reduce_max(tf.abs(weights), axis, keepdims=True) / _LARGEST
        values = tf.round(tf.math.divide_no_nan(weights, scales))
        self._scales = tf.Variable(scales, trainable=False)
        self._values = tf.Variable(tf.cast(values, tf.int8), trainable=False)
        self._initialize()

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        children = super()._trackable_children(save_type, **kwargs)
        return {**children, "scales": self._scales, "values": self._values}

    # --- what TensorFlow calls when it saves and loads ---

    def _create_resource(self):
        # In one process of Python, variables of the same name are one.
        name = f"dequantized_{uuid.uuid4().hex}"
        return tf.raw_ops.VarHandleOp(dtype=self._dtype, shape=self._shape, shared_name=name)

    def _initialize(self):
        weights = tf.cast(self._values, tf.float32) * self._scales
        tf.raw_ops.AssignVariableOp(
            resource=self.resource_handle, value=tf.cast(weights, self._dtype)
        )

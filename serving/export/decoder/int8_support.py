"""Checks whether a machine multiplies 8-bit numbers exactly, before an export serves there.

oneDNN multiplies 8-bit numbers on every x86-64 processor. But without an instruction for them, it
adds pairs of products in 16 bits, and these saturate: answers would be wrong, without an error.
"""

import uuid
from typing import Any

import numpy as np
import tensorflow as tf

from serving.export.decoder.int8_product import Int8Linear, Range

REQUIREMENT = (
    "TensorFlow with oneDNN (Linux on x86-64) on a processor with AVX512-VNNI, AVX-VNNI or AMX"
)
_SIZE = 64


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
    kernel = np.full([_SIZE, _SIZE], 127.0, np.float32)
    return Int8Linear(kernel, np.zeros(_SIZE, np.float32), Range(1.0, 0))


def _assert_exact(linear: Int8Linear) -> tf.Operation:
    """Multiplies the largest 8-bit numbers, and asserts that the sums are exact."""
    product = linear(tf.bitcast(tf.fill([_SIZE, _SIZE], tf.constant(255, tf.uint8)), tf.quint8))
    return tf.debugging.Assert(
        tf.reduce_all(product == 255.0 * 127.0 * _SIZE),
        [
            f"The processor does not multiply 8-bit numbers exactly; that needs {REQUIREMENT}. "
            "Received a product of:",
            product[0, 0],
        ],
    )

"""How fast training is: FLOPs of a token, and the device's peak."""

import time
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from gpt1_keras.preset_files import count_matrix_weights
from gpt1_keras.types import Tensor


def flops_per_token(config: dict[str, Any], length: int) -> int:
    """Returns the FLOPs of a training step for one token, forward and backward.

    They are 6 for each weight of the matrices and of the output, and 12 * layers * width * length
    for attention; the half that the causal mask hides counts too.

    Args:
        config: constructor arguments of a backbone.
        length: tokens in a window.
    """
    width = config["hidden_dim"]
    weights = count_matrix_weights(config) + config["vocabulary_size"] * width
    return 6 * weights + 12 * config.get("num_layers", 0) * width * length


def measure_peak(dtype: str, size: int = 2048, repeats: int = 5) -> float:
    """Measures FLOPs per second of the device's best of `repeats` products of square matrices."""
    a = ops.cast(keras.random.uniform((size, size)), dtype)
    multiply = _compiled(lambda a: ops.sum(ops.cast(ops.matmul(a, a), "float32")))
    float(multiply(a))
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        float(multiply(a))  # `float` waits for the device
        seconds.append(time.perf_counter() - started)
    return 2 * size**3 / min(seconds)


def _compiled(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function)

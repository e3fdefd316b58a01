"""How fast a training is: FLOPs a token, and the share of what the device can do."""

import time

import keras
from keras import ops


def flops_per_token(config, length):
    """FLOPs of a training step for one token, forward and backward.

    Six for each weight of the blocks' matrices and of the output, and 12 layers width length for
    attention, without credit for the half that the causal mask hides.

    Args:
        config: a `GPT1Backbone`'s or an `LSTMBackbone`'s configuration, a dict.
        length: int, tokens in a window.
    """
    width = config["hidden_dim"]
    if "units" in config:
        units = config["units"]
        recurrent = 4 * units * (width + units) + units * width
        return 6 * (recurrent + config["vocabulary_size"] * width)
    layers = config["num_layers"]
    block = 4 * width * width + 2 * width * config["intermediate_dim"]
    weights = layers * block + config["vocabulary_size"] * width
    return 6 * weights + 12 * layers * width * length


def measure_peak(dtype, size=2048, repeats=5):
    """FLOPs a second of the device's best matrix product of that size and dtype."""
    a = ops.cast(keras.random.uniform((size, size)), dtype)
    multiply = _compiled(lambda a: ops.sum(ops.cast(ops.matmul(a, a), "float32")))
    float(multiply(a))
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        float(multiply(a))  # which waits for the device
        seconds.append(time.perf_counter() - started)
    return 2 * size**3 / min(seconds)


def _compiled(function):
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function)

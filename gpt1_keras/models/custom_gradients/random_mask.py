"""Random booleans, for dropout."""

import math

import keras
from keras import ops

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.types import Tensor

_VALUES = 2**16


def random_mask(
    shape: tuple[int | Tensor, ...],
    probability: float,
    seed_generator: keras.random.SeedGenerator,
) -> Tensor:
    """Samples booleans, of a shape of ints or int scalars, that are true with a probability.

    On TensorFlow, the probability is rounded to a multiple of 2^-16, and each random number of 64
    bits yields four booleans. A uniform float for each boolean, as in Keras's dropout, takes twice
    as long in a graph and 70 times as long in XLA on a CPU.
    """
    if keras.backend.backend() != "tensorflow":
        return keras.random.uniform(shape, seed=seed_generator) < probability
    size = math.prod(shape)
    words = tf.random.stateless_uniform(
        [-(-size // 4)], seed_generator.next(), minval=None, maxval=None, dtype="uint64"
    )
    numbers = ops.reshape(tf.bitcast(words, "uint16"), (-1,))[:size]
    last = min(round(probability * _VALUES), _VALUES) - 1
    return ops.reshape(numbers <= tf.constant(last, "uint16"), shape)

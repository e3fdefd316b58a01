"""The fastest matrix product of a framework: what a training step can be measured against.

    python -m benchmarks.matrix_product tensorflow --dtype float32 --size paper --turns 7

It takes turns, as `benchmarks.common.turns` says; in each, every shape is multiplied once.
"""

import argparse
import time

from benchmarks.common.setting import SIZES, cores
from benchmarks.common.turns import Turns, summarize


def shapes(size):
    """Products (m, k) x (k, n) of the model's forward pass, and a square one."""
    tokens = 4 * size["max_sequence_length"]
    width, wide, vocabulary = size["hidden_dim"], size["intermediate_dim"], size["vocabulary_size"]
    return [
        (tokens // 2, width, wide),
        (tokens, width, wide),
        (tokens, wide, width),
        (tokens, width, vocabulary),
        (tokens, tokens, tokens),
    ]


def _tensorflow(dtype):
    import tensorflow as tf

    product = tf.function(tf.matmul, jit_compile=False)
    return (lambda shape: tf.cast(tf.random.normal(shape), dtype)), product


def _torch(dtype):
    import torch

    torch.set_num_threads(cores())
    return (lambda shape: torch.randn(shape).to(getattr(torch, dtype))), torch.matmul


FRAMEWORKS = {"tensorflow": _tensorflow, "torch": _torch}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matrix_product")
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--turns", type=int, required=True)
    options = parser.parse_args()
    make, product = FRAMEWORKS[options.framework](options.dtype)
    factors = [(make((m, k)), make((k, n))) for m, k, n in shapes(SIZES[options.size])]
    turns = Turns()
    for _ in range(options.turns):
        turns.begin()
        turns.end(gigaflops=max(_speed(product, a, b) for a, b in factors))
    summarize()


def _speed(product, a, b):
    """GFLOP/s."""
    started = time.perf_counter()
    product(a, b)
    return 2e-9 * a.shape[0] * a.shape[1] * b.shape[1] / (time.perf_counter() - started)


if __name__ == "__main__":
    main()

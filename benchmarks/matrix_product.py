"""The fastest matrix product of a framework: what a training step can be measured against.

    python -m benchmarks.matrix_product tensorflow --dtypes float32,bfloat16 --size paper

The last line printed is a JSON object: for each dtype the best GFLOP/s over the shapes.
"""

import argparse
import json
import time

from benchmarks.setting import SIZES, cores

_REPEATS = 5


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


def best(framework, dtype, size):
    """The best GFLOP/s of one framework in one dtype."""
    make, product = FRAMEWORKS[framework](dtype)
    return max(_speed(make, product, *shape) for shape in shapes(size))


def _speed(make, product, m, k, n):
    a, b = make((m, k)), make((k, n))
    product(a, b)  # the first call prepares
    seconds = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        product(a, b)
        seconds.append(time.perf_counter() - started)
    return 2e-9 * m * k * n / min(seconds)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matrix_product")
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("--dtypes", required=True)
    parser.add_argument("--size", choices=SIZES, required=True)
    options = parser.parse_args()
    dtypes = options.dtypes.split(",")
    print(json.dumps({d: best(options.framework, d, SIZES[options.size]) for d in dtypes}))


if __name__ == "__main__":
    main()

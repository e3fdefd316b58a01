"""The fastest matrix product of TensorFlow or torch, and what it allows at most."""

import contextlib
import statistics
import time

from benchmarks.harness.machine import cores
from benchmarks.harness.measured_models import SIZES
from benchmarks.harness.turns import REST, Worker, alternate

FRAMEWORKS = ("tensorflow", "torch")
LIMIT = "limit, float32"  # in tables: an answer's least products at the fastest product's speed


def multiply(turns, framework, dtype, size, rounds):
    """Multiplies every shape once in each turn; reports the highest GFLOP/s."""
    make, product = {"tensorflow": _tensorflow, "torch": _torch}[framework](dtype)
    factors = [(make((m, k)), make((k, n))) for m, k, n in _shapes(SIZES[size])]
    for _ in range(rounds):
        turns.begin()
        turns.end(gigaflops=max(_speed(product, a, b) for a, b in factors))


def product_workers(stack, dtype, size, rounds):
    """Starts workers of both frameworks, by name; they end with an `ExitStack`."""
    function = "harness.matrix_product:multiply"
    return {
        name: stack.enter_context(
            Worker(function, framework=name, dtype=dtype, size=size, rounds=rounds)
        )
        for name in FRAMEWORKS
    }


def fastest_product(dtype, size, rounds=3):
    """Returns the GFLOP/s of the faster framework: the median of the rounds after a first one."""
    with contextlib.ExitStack() as stack:
        workers = product_workers(stack, dtype, size, 1 + rounds)
        turns = {name: worker.turn for name, worker in workers.items()}
        return statistics.median(fastest_of(alternate(turns, rounds, rest=REST)))


def fastest_of(results):
    """Returns the faster framework's GFLOP/s in each round, from results of `alternate`."""
    rounds = zip(*(results[name] for name in FRAMEWORKS))
    return [max(facts["gigaflops"] for facts in of_round) for of_round in rounds]


def least_flops(size, tokens):
    """Returns the FLOPs of the products that a classifier needs for a text of `tokens` tokens.

    In the last block, tokens before the last need only keys and values. A token attends to itself
    and to those before it. Normalisation, softmax, GELU and the head are not counted.

    Args:
        size: dict like those in `SIZES`.
        tokens: int.
    """
    width, blocks = size["hidden_dim"], size["num_layers"]
    of_block = 2 * (4 * width**2 + 2 * width * size["intermediate_dim"])
    of_keys_and_values = 2 * 2 * width**2
    attention = 4 * width * (tokens * (tokens + 1) // 2)
    before_last = (blocks - 1) * (tokens * of_block + attention)
    return before_last + (tokens - 1) * of_keys_and_values + of_block + 4 * width * tokens


def _shapes(size):
    """Returns shapes (m, k, n) of products: those of the model's forward pass, and a square."""
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


def _speed(product, a, b):
    """Returns the GFLOP/s of one product."""
    started = time.perf_counter()
    product(a, b)
    return 2e-9 * a.shape[0] * a.shape[1] * b.shape[1] / (time.perf_counter() - started)

"""The FLOPs of a training step, against a count of the matrices; and a device's peak."""

import pytest

import gpt1_keras
from training.evaluation.throughput import flops_per_token, measure_peak

CONFIG = {
    "vocabulary_size": 1000,
    "num_layers": 2,
    "num_heads": 4,
    "hidden_dim": 128,
    "intermediate_dim": 512,
    "max_sequence_length": 64,
}


def test_operations_are_counted_for_every_matrix_but_positions():
    backbone = gpt1_keras.GPT1Backbone(**CONFIG)
    matrices = sum(
        weight.shape.num_elements() for weight in backbone.weights if len(weight.shape) > 1
    )
    matrices -= CONFIG["max_sequence_length"] * CONFIG["hidden_dim"]
    # Scores and context are each 2 x 32 x width operations a token forward, twice that backward.
    attention = 3 * 2 * (2 * 32 * CONFIG["hidden_dim"]) * CONFIG["num_layers"]
    expected = 6 * matrices + attention
    assert flops_per_token(backbone.get_config(), length=32) == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_peak_is_measured(dtype):
    assert measure_peak(dtype, size=64, repeats=2) > 0

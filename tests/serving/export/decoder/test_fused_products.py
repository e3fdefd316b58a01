"""In exports, oneDNN fuses bias, GELU and residual into its products; its log shows it."""

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
import tensorflow as tf
import gpt1_keras
from serving.export.decoder.packed_decoder import PackedDecoder

decoder = PackedDecoder(gpt1_keras.GPT1Backbone(50, 2, 2, 32, 128, 24), [16, 24])
signature = [tf.TensorSpec([None, None], tf.int32)] * 2
run = tf.function(decoder.states_at, input_signature=signature, autograph=False)
run(np.ones([3, 24], "int32"), np.array([[23], [4], [9]], "int32"))
"""


@pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"),
    reason="TensorFlow has oneDNN on Linux on x86-64",
)
def test_products_are_fused():
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1", "ONEDNN_VERBOSE": "1"},
    )
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    products = [line for line in lines if ",exec,cpu,inner_product," in line]
    assert len(products) == 8
    assert all(" bia:" in line for line in products)
    assert sum("post-ops:eltwise_gelu_tanh" in line for line in products) == 2
    assert sum("post-ops:sum" in line for line in products) == 2  # those of feed-forward layers
    assert not any(",exec,cpu,eltwise,gelu" in line for line in lines)

"""In exports, oneDNN fuses bias, GELU and residual into its products; its log shows it."""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tensorflow.core.protobuf import saved_model_pb2

from serving.export import export as serving_export
from serving.export.export_options import Batching

PROGRAM = """
import numpy as np
import tensorflow as tf
import gpt1_keras
from serving.export.decoder.packed_decoder import PackedDecoder

backbone = gpt1_keras.GPT1Backbone(50, 2, 2, 32, 128, max_sequence_length=24)
decoder = PackedDecoder(backbone, [16, 24])
signature = [tf.TensorSpec([None, None], tf.int32)] * 2
run = tf.function(decoder.states_at, input_signature=signature, autograph=False)
run(np.ones([3, 24], "int32"), np.array([[23], [4], [9]], "int32"))
"""


ANSWER = """
import pathlib
import sys
import tensorflow as tf
from serving.server.models.servable import Servable

for number, folder in enumerate(sys.argv[1:]):
    servable = Servable("model", 1, pathlib.Path(folder))
    print("export", number, flush=True)
    servable.predict("serving_default", {"text": tf.make_tensor_proto(["a good film"])})
"""

pytestmark = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"),
    reason="TensorFlow has oneDNN on Linux on x86-64",
)


def products_logged(*arguments):
    """Runs Python with oneDNN's log; returns its lines."""
    process = subprocess.run(
        [sys.executable, "-c", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1", "ONEDNN_VERBOSE": "1"},
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


@pytest.mark.slow
def test_products_are_fused():
    lines = products_logged(PROGRAM)
    products = [line for line in lines if ",exec,cpu,inner_product," in line]
    assert len(products) == 8
    assert all(" bia:" in line for line in products)
    assert sum("post-ops:eltwise_gelu_tanh" in line for line in products) == 2
    assert sum("post-ops:sum" in line for line in products) == 2  # those of feed-forward layers
    assert not any(",exec,cpu,eltwise,gelu" in line for line in lines)


@pytest.mark.slow
def test_weights_are_packed_once_where_the_environment_says_so(monkeypatch):
    monkeypatch.setenv("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", "1")
    lines = products_logged(PROGRAM)
    products = [line for line in lines if ",exec,cpu,inner_product," in line]
    assert len(products) == 8
    assert all(",forward_inference," in line for line in products)  # else forward_training
    assert sum("post-ops:eltwise_gelu_tanh" in line for line in products) == 2
    assert sum("post-ops:sum" in line for line in products) == 2


@pytest.mark.slow
def test_products_of_merged_requests_are_fused_whatever_functions_are_called(
    make_classifier, tmp_path
):
    """Hashes of the functions' names decide in which order TensorFlow optimizes them."""
    export = Path(serving_export(make_classifier("single", 2), tmp_path / "0", batching=Batching()))
    folders = [export]
    for shift in range(1, 10):
        folders.append(tmp_path / f"{shift}" / "1")
        shutil.copytree(export, folders[-1])
        rename_functions(folders[-1] / "saved_model.pb", 37**shift)
    lines = products_logged(ANSWER, *map(str, folders))
    starts = [index for index, line in enumerate(lines) if line.startswith("export ")]
    assert len(starts) == 10
    for start, end in zip(starts, [*starts[1:], None]):
        products = [line for line in lines[start:end] if ",exec,cpu,inner_product," in line]
        assert sum("post-ops:eltwise_gelu_tanh" in line for line in products) == 2
        assert sum("post-ops:sum" in line for line in products) == 2
        assert sum(" bia:" in line for line in products) >= 8


@pytest.mark.parametrize("kind", ["classifier", "language model"])
def test_no_blocks_are_in_the_body_of_a_function_that_merges(make_classifier, lm, tmp_path, kind):
    """In bfloat16, TensorFlow would not fuse their products there."""
    model = lm if kind == "language model" else make_classifier("single")
    path = Path(serving_export(model, tmp_path, batching=Batching())) / "saved_model.pb"
    [meta_graph] = saved_model_pb2.SavedModel.FromString(path.read_bytes()).meta_graphs
    library = {each.signature.name: each for each in meta_graph.graph_def.library.function}
    merging = {
        node.attr["f"].func.name
        for function in library.values()
        for node in function.node_def
        if node.op == "BatchFunction"
    }
    assert len(merging) == (2 if kind == "language model" else 1)
    for name in merging:
        assert "Tanh" not in inlined_ops(name, library)  # GELU's
    gelus = [node for each in library.values() for node in each.node_def if node.op == "Tanh"]
    functions = 3 if kind == "language model" else 1  # they score, read a prompt and take a step
    assert len(gelus) == functions * model.backbone.num_layers


def inlined_ops(name, library):
    """Returns the ops of a function, and of those that can be inlined into it."""
    ops = set()
    for node in library[name].node_def:
        called = [value.func.name for value in node.attr.values() if value.HasField("func")]
        called += [each.name for value in node.attr.values() for each in value.list.func]
        for function in called:
            if not library[function].attr["_noinline"].b:
                ops |= inlined_ops(function, library)
        ops.add(node.op)
    return ops


def rename_functions(path, shift):
    """Adds to the number that each function's name ends with, and keeps the name's length."""
    content = path.read_bytes()
    [meta_graph] = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    names = [function.signature.name for function in meta_graph.graph_def.library.function]
    names = sorted((name.encode() for name in names if name[-1].isdecimal()), key=len)[::-1]

    def renamed(found):
        name, number = re.fullmatch(rb"(.*?)(\d+)", found[0]).groups()
        return name + b"%0*d" % (len(number), (int(number) + shift) % 10 ** len(number))

    path.write_bytes(re.sub(b"|".join(map(re.escape, names)), renamed, content))
    assert path.read_bytes() != content

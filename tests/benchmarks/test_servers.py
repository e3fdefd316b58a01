"""The servers that the benchmarks measure answer, and end with the block that starts them."""

import psutil
import pytest
import tensorflow as tf

from benchmarks.harness.servers import GrpcLoad, HttpLoad, serve_export


@pytest.mark.slow
def test_an_export_is_served(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def answer(text):
        return {"text": tf.identity(text)}

    tf.saved_model.save(tf.Module(), str(tmp_path / "1"), signatures=answer)
    with serve_export(tmp_path) as (pid, port, rest_port):
        GrpcLoad(port, "model", ["a film"]).client()(0)
        document = {"instances": ["a film"]}
        HttpLoad(rest_port, "/v1/models/model:predict", [document]).client()(0)
    assert not psutil.pid_exists(pid)

"""The check of an export finds what would fail in TensorFlow Serving."""

import json
import os
import pathlib
import shutil

import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from serving import check
from serving.export import server_settings
from serving.export.check import Request, products_of, unfused
from serving.runtime_process import REQUEST

TEXT = tf.TensorSpec([None], tf.string, name="text")


@pytest.fixture
def run(capsys):
    """A function that runs the program and returns its exit status, output and error output."""

    def main(*arguments):
        status = check.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return main


def test_a_good_export(run, model_base_path, tmp_path):
    path = tmp_path / "3"
    shutil.copytree(model_base_path / "3", path)
    extra = path / "assets.extra"
    extra.mkdir()
    metadata = {"task": "GPT1TextClassifier", "class_names": ["negative", "positive"]}
    (extra / "gpt1_keras.json").write_text(json.dumps(metadata))
    with tf.io.TFRecordWriter(str(extra / "tf_serving_warmup_requests")) as writer:
        log = PredictionLog()
        log.predict_log.request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a", "b"]))
        for _ in range(2):
            writer.write(log.SerializeToString())
    status, out, err = run(path)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        str(path),
        "  task: GPT1TextClassifier",
        "  class_names: negative, positive",
        f"TensorFlow {tf.__version__}",
        "  classify, requests made up: 1",
        "  echo, requests made up: 1",
        "  explain, requests made up: 1",
        "  misclassify, requests made up: 1",
        "  misregress, requests made up: 1",
        "  regress, requests made up: 1",
        "  serving_default, requests from the warm-up: 2",
        "  slow, requests made up: 1",
        "  tokens, requests made up: 1",
        "problems: 0",
    ]


class Troubled(tf.Module):
    """Signatures that Python TensorFlow runs, and TensorFlow Serving does not, or differently."""

    def __init__(self, table):
        super().__init__()
        initializer = tf.lookup.TextFileInitializer(
            str(table), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, -1
        )
        self.table = tf.lookup.StaticHashTable(initializer, -1)
        self.path = str(table)

    @tf.function(input_signature=[TEXT])
    def python(self, text):
        return {"text": tf.ensure_shape(tf.py_function(lambda x: x, [text], tf.string), [None])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")], jit_compile=True)
    def compiled(self, x):
        return {"y": x * 2}

    @tf.function(input_signature=[TEXT])
    def file_outside(self, text):
        return {"text": tf.strings.join([text, tf.io.read_file(self.path)])}

    @tf.function(input_signature=[TEXT])
    def clock(self, text):
        return {"time": tf.timestamp() + tf.zeros(tf.shape(text), tf.float64)}

    @tf.function(input_signature=[TEXT])
    def diverged(self, text):
        scores = tf.constant([[float("nan"), float("inf")]])
        return {"label": text, "scores": scores + tf.zeros([tf.size(text), 1])}

    @tf.function(input_signature=[TEXT])
    def lookup(self, text):
        return {"id": self.table.lookup(text)}

    @tf.function(input_signature=[TEXT])
    def words(self, text):
        return {"words": tf.strings.split(text)}


def test_an_export_with_problems(run, tmp_path):
    table = tmp_path / "table.txt"
    table.write_text("a\nb\n")
    model = Troubled(table)
    names = ["python", "compiled", "file_outside", "clock", "lookup", "words"]
    names += ["diverged"]
    path = tmp_path / "1"
    tf.saved_model.save(model, str(path), signatures={name: getattr(model, name) for name in names})
    this = pathlib.Path(tf.__file__).parent
    status, out, _ = run(path, "--tf-dir", this, "--tf-dir", this)
    assert status == 1
    assert "  made by another program, which did not say how" in out
    problems = [line for line in out.splitlines() if line.startswith("PROBLEM: ")]
    assert out.splitlines()[-1] == f"problems: {len(problems)}"
    for expected in [
        f"is the path of a file of this machine: {str(table).encode()!r}",
        "signature python, a request made up: ",
        "signature compiled, a request made up: XLA compilation disabled",
        "signature words: output words is ragged or sparse, which is not served",
        "signature diverged: NaN or infinite numbers in ['",
        "signature clock: not the outputs of the first TensorFlow",
    ]:
        assert any(expected in problem for problem in problems), (expected, problems)


def _logged(kind, axes, bias=""):
    """Returns a line of oneDNN's log on a product in bfloat16, which this machine may not have."""
    sides = f"src:bf16::blocked:{axes}::f0 wei:bf16::blocked:{axes}::f0 {bias}dst:bf16:a:any"
    return f"onednn_verbose,v1,primitive,exec,cpu,{kind},brg,undef,{sides},attr,,8x32:32x64,0.03"


def test_products_without_their_biases():
    """TensorFlow adds them in further passes where it does not know the products' device."""
    fused = [_logged("inner_product", "ab", "bia:bf16:a:blocked:a::f0 "), _logged("matmul", "abcd")]
    apart = [_logged("matmul", "ab"), _logged("matmul", "abcd")]
    logs = {"fused": fused, "apart": apart, "both": [*apart, *fused], "none": []}
    requests = [Request(signature, "made up", {}, []) for signature in logs]
    products = products_of([line for log in logs.values() for line in (REQUEST, *log)])
    notes = list(unfused(requests, {"products": products}))
    assert notes == ["signature apart: biases are not fused into its products, which is slower"]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "is not an export: it has no saved_model.pb"),
        (b"\xff\xff", "saved_model.pb is damaged: "),
        (b"", "saved_model.pb has no graph with the tag 'serve'"),
    ],
)
def test_invalid_exports(run, tmp_path, content, error):
    if content is not None:
        (tmp_path / "saved_model.pb").write_bytes(content)
    status, out, err = run(tmp_path)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"error: Cannot check {tmp_path}: ")
    assert error in err


def test_missing_libraries(run, model_base_path, tmp_path):
    status, _, err = run(model_base_path / "3", "--tf-dir", tmp_path)
    assert status == 1
    assert f"Expected TensorFlow's library libtensorflow_framework in {tmp_path}" in err


@pytest.mark.slow
def test_the_fastest_settings_are_measured(run, model_base_path, monkeypatch):
    monkeypatch.setattr(server_settings, "_SECONDS", 0.2)
    status, out, _ = run(model_base_path, "--tune")
    assert status == 0
    for cores in {1, os.cpu_count()}:
        for texts in ("short", "long"):
            _, _, measured = out.partition(f"{texts} texts, {cores} at once, requests a second:\n")
            rates = [float(line.split()[0]) for line in measured.splitlines()[:6]]
            assert len(rates) == 6 and min(rates) > 0
    assert out.count("<- the fastest") == out.count(" at once")
    assert out.count("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1 --tensorflow_intra_op_parallelism=1") > 1

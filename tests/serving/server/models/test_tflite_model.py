"""`--prefer_tflite_model`: LiteRT runs a version's model.tflite, with the file's signatures."""

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import tensorflow as tf
from flatbuffers import flexbuffers
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef, TensorInfo
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from serving.server import Server
from serving.server.errors import ServingError
from serving.server.models.loading import Loader
from serving.server.models.servable import Servable
from serving.server.options import Options
from serving.tflite_metadata import pack, unpack

LITE = Loader(Options(prefer_tflite_model=True, num_tflite_pools=2))
INPUT, OUTPUTS = "serving_default_x:0", ["PartitionedCall:0", "PartitionedCall:1"]


class HalfPlusTwo(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def numbers(self, x):
        return {"y": x / 2 + 2, "z": x * 3}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def texts(self, text):
        return {"same": text}


def convert(name):
    """Returns the content of a .tflite file of one of the methods."""
    model = HalfPlusTwo()
    concrete = [getattr(model, name).get_concrete_function()]
    return tf.lite.TFLiteConverter.from_concrete_functions(concrete, model).convert()


@pytest.fixture(scope="module")
def content():
    return convert("numbers")


@pytest.fixture
def folder(tmp_path, content):
    """Version 1, of which only model.tflite is there."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.tflite").write_bytes(content)
    return tmp_path


def with_signatures(content, buffer):
    """Returns a file's content with a metadata buffer, as TensorFlow Serving reads signatures."""
    model = unpack(content)
    made, entry = schema.BufferT(), schema.MetadataT()
    made.data = np.frombuffer(buffer, np.uint8)
    entry.name, entry.buffer = "signature_defs_metadata", len(model.buffers)
    model.buffers.append(made)
    model.metadata = [*(model.metadata or []), entry]
    return pack(model)


def serialized(name, x=INPUT):
    """Returns such a buffer, with one signature."""
    signature = SignatureDef(method_name="tensorflow/serving/predict")
    signature.inputs["x"].CopyFrom(TensorInfo(name=x, dtype=tf.float32.as_datatype_enum))
    signature.outputs["y"].CopyFrom(TensorInfo(name=OUTPUTS[0], dtype=tf.float32.as_datatype_enum))
    builder = flexbuffers.Builder()
    with builder.Map():
        builder.Key(name)
        # As C++ writes it: bytes in a string.
        builder.String(signature.SerializeToString().decode("latin-1"))
    return bytes(builder.Finish())


def test_signatures_without_metadata_are_named_by_tensors(folder):
    servable = Servable("half", 1, folder / "1", loader=LITE)
    [(name, signature)] = servable.signature_defs.items()
    assert name == "serving_default"
    assert list(signature.inputs) == ["serving_default_x"]
    assert signature.inputs["serving_default_x"].name == INPUT
    assert sorted(signature.outputs) == OUTPUTS  # TensorFlow Serving would lose one
    for values in ([2.0], [2.0, 4.0, 6.0], [8.0]):
        inputs = {"serving_default_x": tf.make_tensor_proto(values)}
        found = servable.predict("serving_default", inputs)
        halves = [value / 2 + 2 for value in values]
        assert sorted(array.tolist() for array in found.values()) == sorted(
            [halves, [value * 3 for value in values]]
        )


def test_signatures_of_the_metadata(folder, content):
    (folder / "1" / "model.tflite").write_bytes(with_signatures(content, serialized("halves")))
    servable = Servable("half", 1, folder / "1", loader=LITE)
    assert list(servable.signature_defs) == ["halves"]
    found = servable.predict("halves", {"x": tf.make_tensor_proto([2.0])})
    assert found["y"].tolist() in ([3.0], [6.0])


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (serialized("halves", x="other:0"), "references an unknown tensor: Unknown tensor 'other'"),
        (b"\x00\x01", "Invalid SignatureDefs found in TfLite model"),
    ],
)
def test_metadata_that_does_not_fit(folder, content, buffer, message):
    (folder / "1" / "model.tflite").write_bytes(with_signatures(content, buffer))
    with pytest.raises(ServingError, match=message):
        Servable("half", 1, folder / "1", loader=LITE)


def test_a_file_that_is_broken(folder, content):
    for broken in (b"", b"not a file", content[: len(content) // 2]):
        (folder / "1" / "model.tflite").write_bytes(broken)
        with pytest.raises(ServingError, match="model.tflite: "):
            Servable("half", 1, folder / "1", loader=LITE)


@pytest.mark.parametrize("value", [3.0, [[1.0, 2.0], [3.0, 4.0]], [[[[1.0]]]], [[]]])
def test_an_input_of_another_rank_is_resized(folder, value):
    """As in TensorFlow Serving: the model decides what it takes."""
    servable = Servable("half", 1, folder / "1", loader=LITE)
    inputs = {"serving_default_x": tf.make_tensor_proto(value, tf.float32)}
    halves, triples = (np.array(value) / 2 + 2).tolist(), (np.array(value) * 3).tolist()
    found = [array.tolist() for array in servable.predict("serving_default", inputs).values()]
    assert found in ([halves, triples], [triples, halves])


def test_a_bad_request_fails_alone(folder):
    servable = Servable("half", 1, folder / "1", loader=LITE)
    with pytest.raises(ServingError, match="Got value of type INT32 but expected") as caught:
        servable.predict("serving_default", {"serving_default_x": tf.make_tensor_proto([1])})
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    good = {"serving_default_x": tf.make_tensor_proto([2.0])}
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(servable.predict, "serving_default", good) for _ in range(8)]
        assert all(len(future.result()) == 2 for future in futures)


def test_strings(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.tflite").write_bytes(convert("texts"))
    servable = Servable("texts", 1, tmp_path / "1", loader=LITE)
    [signature] = servable.signature_defs.values()
    [alias] = signature.inputs
    texts = ["a", "", "d\u00e9j\u00e0 vu"]
    [found] = servable.predict("serving_default", {alias: tf.make_tensor_proto(texts)}).values()
    assert found.tolist() == [text.encode() for text in texts]


def test_the_saved_model_is_run_where_there_is_no_such_file(model_base_path):
    assert "tokens" in Servable("tiny", 3, model_base_path / "3", loader=LITE).signature_defs


def test_the_server_runs_it(folder, free_port):
    """Over both protocols."""
    port = free_port()
    with (
        Server(
            "half",
            str(folder),
            port=0,
            rest_api_port=port,
            prefer_tflite_model=True,
        ) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        request = PredictRequest(model_spec=ModelSpec(name="half"), output_filter=OUTPUTS)
        request.inputs["serving_default_x"].CopyFrom(tf.make_tensor_proto([2.0, 4.0]))
        outputs = PredictionServiceStub(channel).Predict(request, timeout=60).outputs
        found = sorted(list(outputs[name].float_val) for name in OUTPUTS)
        body = json.dumps({"instances": [2.0, 4.0]}).encode()
        url = f"http://127.0.0.1:{port}/v1/models/half:predict"
        with urllib.request.urlopen(url, body, timeout=60) as response:
            rows = json.load(response)["predictions"]
    assert found == [[3.0, 4.0], [6.0, 12.0]]
    assert [sorted(row.values()) for row in rows] == [[3.0, 6.0], [4.0, 12.0]]

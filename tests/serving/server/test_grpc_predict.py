"""Predict over gRPC: good answers, and TensorFlow Serving's error for every mistake."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest


def predict_request(signature="", output_filter=(), **inputs):
    model_spec = ModelSpec(name="tiny", signature_name=signature)
    request = PredictRequest(model_spec=model_spec, output_filter=output_filter)
    for name, value in inputs.items():
        proto = value if isinstance(value, TensorProto) else tf.make_tensor_proto(value)
        request.inputs[name].CopyFrom(proto)
    return request


def tokens_request(token_ids, padding_mask):
    return predict_request("tokens", token_ids=token_ids, padding_mask=padding_mask)


def test_predict_answers_in_typed_fields(client):
    request = predict_request(text=[b"abc", b"abcdefg"])
    response = client.prediction.Predict(request, timeout=30)

    assert response.model_spec.name == "tiny"
    assert response.model_spec.version.value == 3
    assert response.model_spec.signature_name == "serving_default"
    assert set(response.outputs) == {"label", "scores", "num_tokens", "truncated"}
    assert list(response.outputs["label"].string_val) == [b"negative", b"positive"]
    assert list(response.outputs["scores"].float_val) == pytest.approx([0.7, 0.3, 0.3, 0.7])
    assert list(response.outputs["num_tokens"].int_val) == [3, 7]
    assert list(response.outputs["truncated"].bool_val) == [False, False]
    assert [dim.size for dim in response.outputs["scores"].tensor_shape.dim] == [2, 2]
    assert not any(proto.tensor_content for proto in response.outputs.values())


def test_predict_with_version_signature_and_output_filter(client):
    request = tokens_request([[4, 5]], [[1, 0]])
    request.model_spec.version.value = 3
    request.output_filter.append("scores")
    response = client.prediction.Predict(request, timeout=30)

    assert response.model_spec == request.model_spec
    assert set(response.outputs) == {"scores"}
    assert list(response.outputs["scores"].float_val) == pytest.approx([0.6, 0.4])


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"a\0b\0", "añ😀".encode()])
def test_predict_takes_any_bytes(client, text):
    request = predict_request("echo", text=tf.make_tensor_proto([text]))
    response = client.prediction.Predict(request, timeout=30)
    assert list(response.outputs["text"].string_val) == [text]


def test_predict_takes_an_empty_batch(client):
    request = predict_request(text=tf.make_tensor_proto([], tf.string))
    response = client.prediction.Predict(request, timeout=30)
    assert not response.outputs["label"].string_val
    assert [dim.size for dim in response.outputs["scores"].tensor_shape.dim] == [0, 2]


def test_predict_takes_tensor_content(client):
    token_ids = tf.make_tensor_proto([[1, 2, 3]])
    assert token_ids.tensor_content
    request = tokens_request(token_ids, [[1, 1, 1]])
    response = client.prediction.Predict(request, timeout=30)
    assert list(response.outputs["label"].string_val) == [b"positive"]


def test_predict_answers_many_clients_at_once(client):
    def num_tokens(length):
        request = predict_request(text=[b"x" * length])
        return client.prediction.Predict(request, timeout=30).outputs["num_tokens"].int_val[0]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(num_tokens, range(50))) == list(range(50))


def tensor(dtype, size):
    proto = TensorProto(dtype=dtype)
    proto.tensor_shape.dim.add(size=size)
    return proto


PREDICT_ERRORS = [
    (
        predict_request("nope"),
        'FAILED_PRECONDITION: Serving signature key "nope" not found.',
    ),
    (
        predict_request(),
        (
            "INVALID_ARGUMENT: input size does not match signature: 0!=1 len({}) != len({text}). "
            "Sent extra: {}. Missing but required: {text}."
        ),
    ),
    (
        predict_request(text=["a"], b=["b"], a=["a"]),
        (
            "INVALID_ARGUMENT: input size does not match signature: 3!=1 len({a,b,text}) != "
            "len({text}). Sent extra: {a,b}. Missing but required: {}."
        ),
    ),
    (
        predict_request(sentence=["a"]),
        (
            "INVALID_ARGUMENT: Signature input alias: text(feed name: serving_default_text:0) not "
            "found in request and no default value provided. Inputs expected to be in the request "
            "{sentence}, or default input alias set: "
        ),
    ),
    # Malformed: a negative size, no dtype, an unknown dtype, content of the wrong length.
    (predict_request(text=tensor(7, -1)), "INVALID_ARGUMENT: tensor parsing error: text"),
    (predict_request(text=tensor(0, 1)), "INVALID_ARGUMENT: tensor parsing error: text"),
    (predict_request(text=tensor(99, 1)), "INVALID_ARGUMENT: tensor parsing error: text"),
    (
        tokens_request(TensorProto(dtype=3, tensor_content=b"12345"), [[1]]),
        "INVALID_ARGUMENT: tensor parsing error: token_ids",
    ),
    (
        predict_request(output_filter=["logits"], text=["a"]),
        (
            "INVALID_ARGUMENT: output tensor alias not found in signature: logits Outputs expected "
            "to be in the set {label,num_tokens,scores,truncated}."
        ),
    ),
    (
        predict_request(output_filter=["label", "label"], text=["a"]),
        "INVALID_ARGUMENT: duplicate output tensor alias: label",
    ),
    (
        predict_request(text=[1, 2]),
        "INVALID_ARGUMENT: Expects arg[0] to be string but int32 is provided",
    ),
    (
        predict_request(text=[1.5]),
        "INVALID_ARGUMENT: Expects arg[0] to be string but float is provided",
    ),
    (
        tokens_request([["a"]], [[1]]),
        "INVALID_ARGUMENT: Expects arg[1] to be int32 but string is provided",
    ),
]


@pytest.mark.parametrize(("request_", "error"), PREDICT_ERRORS)
def test_predict_errors(client, error_of, request_, error):
    assert error_of(client.prediction.Predict, request_) == error


RUNTIME_ERRORS = [
    (tokens_request([[1, 2, 3]], [[1, 1]]), "INVALID_ARGUMENT: Incompatible shapes: [1,"),
    (
        predict_request("classify", inputs=[b"not an example"]),
        "INVALID_ARGUMENT: Could not parse example input, value: 'not an example'",
    ),
    (
        predict_request("classify", inputs=[b"\xff\xff"]),
        "INVALID_ARGUMENT: Could not parse example input, value: '",
    ),
]


@pytest.mark.parametrize(("request_", "error"), RUNTIME_ERRORS)
def test_errors_of_the_graph_have_its_own_message(client, error_of, request_, error):
    found = error_of(client.prediction.Predict, request_)
    assert found.startswith(error)
    assert "[Op:" not in found


@pytest.mark.parametrize("name", ["n" * 5000, "é" * 5000])
def test_error_texts_are_cut(client, error_of, name):
    request = predict_request(text=["a"])
    request.model_spec.name = name
    error = error_of(client.prediction.Predict, request)
    code, _, message = error.partition(": ")
    assert code == "NOT_FOUND"
    assert message.startswith("Servable not found for request: Latest(")
    assert 1023 <= len(message.encode()) <= 1024

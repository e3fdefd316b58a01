"""Hundreds of malformed requests: each is refused, and the server goes on as before."""

import gzip
import json
import random
import re
import socket
import threading
import zlib

import grpc
import psutil
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    predict_pb2,
    regression_pb2,
)

# What a request can be answered with that is at fault itself.
CODES = {
    None,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
}
STATUSES = {200, 400, 403, 404, 408, 413, 414, 431, 501, 505}
MAX_GROWTH_BYTES = 2**25
_PREDICTION = "/tensorflow.serving.PredictionService/"
_MODEL = "/tensorflow.serving.ModelService/"
_NAMES = ["tiny", "", "other", "t\0ny", "é" * 300, "../../etc", "%2e", "TINY"]
# Not `slow`: a well-formed request to it may take hours, and this is not about deadlines.
_SIGNATURES = ["", "classify", "regress", "tokens", "echo", "misclassify", "nope", "é\n"]
_NUMBERS = [0, 1, -1, 3, 2**31 - 1, -(2**63), 2**63 - 1]


def grpc_request(random):
    """A method's path and the bytes of a message."""
    path, make = random.choice(
        [
            (_PREDICTION + "Predict", _predict),
            (_PREDICTION + "Predict", _predict),
            (_PREDICTION + "Classify", _with_examples(classification_pb2.ClassificationRequest)),
            (_PREDICTION + "Regress", _with_examples(regression_pb2.RegressionRequest)),
            (_PREDICTION + "MultiInference", _multi_inference),
            (_PREDICTION + "GetModelMetadata", _metadata),
            (_MODEL + "GetModelStatus", _status),
            (_MODEL + "HandleReloadConfigRequest", _reload),
            (_PREDICTION + "Nothing", _predict),
        ]
    )
    message = make(random)
    if make is _reload:  # spoilt, it may ask for no models at all, which is well-formed
        return path, message
    spoil = random.choice([_kept, _kept, _kept, _mutated, _cut, _noise])
    return path, random.choice([_kept, _kept, _gzipped])(random, spoil(random, message))


def _kept(random, content):
    return content


def _mutated(random, content):
    content = bytearray(content)
    for _ in range(random.randint(1, 8)):
        if content:
            content[random.randrange(len(content))] = random.randrange(256)
    return bytes(content)


def _cut(random, content):
    return content[: random.randint(0, len(content))]


def _gzipped(random, content):
    """As a client sends it that compresses messages; damaged, now and then."""
    compress = random.choice([gzip.compress, zlib.compress])
    return random.choice([_kept, _kept, _cut])(random, compress(content))


def _noise(random, content):
    return random.randbytes(random.randint(0, 200))


def _fill_spec(random, spec):
    spec.name = random.choice(_NAMES) if random.random() < 0.3 else "tiny"
    spec.signature_name = random.choice(_SIGNATURES)
    if random.random() < 0.2:
        spec.version.value = random.choice(_NUMBERS)
    elif random.random() < 0.1:
        spec.version_label = random.choice(_NAMES)


def _predict(random):
    request = predict_pb2.PredictRequest()
    _fill_spec(random, request.model_spec)
    for name in random.sample(["text", "inputs", "token_ids", "padding_mask", "x", ""], 2):
        request.inputs[name].CopyFrom(_tensor(random))
    if request.model_spec.signature_name in ("", "echo"):
        request.inputs.clear()
        request.inputs["text"].CopyFrom(_tensor(random))
    request.output_filter.extend(random.sample(["scores", "label", "", "x"], random.randint(0, 2)))
    return request.SerializeToString()


def _tensor(random):
    proto = TensorProto(dtype=random.choice([7, 7, 3, 1, 0, random.randrange(140)]))
    for _ in range(random.randint(0, 3)):
        proto.tensor_shape.dim.add(size=random.choice([*_NUMBERS, 1, 2, 2]))
    proto.tensor_shape.unknown_rank = random.random() < 0.1
    if random.random() < 0.5:
        proto.string_val.extend(random.randbytes(random.randint(0, 20)) for _ in range(2))
    if random.random() < 0.3:
        proto.int_val.extend([5, -7])
    if random.random() < 0.2:
        proto.tensor_content = random.randbytes(random.randint(0, 40))
    return proto


def _fill_input(random, examples):
    for _ in range(random.randint(0, 3)):
        example = examples.example_list.examples.add()
        feature = example.features.feature[random.choice(["text", "x", ""])]
        feature.bytes_list.value.extend(
            random.randbytes(random.randint(0, 9)) for _ in range(random.randint(0, 2))
        )
        if random.random() < 0.2:
            feature.float_list.value.append(random.random())
    if random.random() < 0.1:
        examples.example_list_with_context.context.features.SetInParent()


def _with_examples(request_class):
    def make(random):
        request = request_class()
        _fill_spec(random, request.model_spec)
        _fill_input(random, request.input)
        return request.SerializeToString()

    return make


def _multi_inference(random):
    request = inference_pb2.MultiInferenceRequest()
    _fill_input(random, request.input)
    for _ in range(random.randint(0, 3)):
        task = request.tasks.add(
            method_name=random.choice(["tensorflow/serving/classify", "tensorflow/serving/x", ""])
        )
        _fill_spec(random, task.model_spec)
    return request.SerializeToString()


def _metadata(random):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    _fill_spec(random, request.model_spec)
    request.metadata_field.extend(random.sample(["signature_def", "", "x"], random.randint(0, 2)))
    return request.SerializeToString()


def _status(random):
    request = get_model_status_pb2.GetModelStatusRequest()
    _fill_spec(random, request.model_spec)
    return request.SerializeToString()


def _reload(random):
    """A list of models that is refused, or no list."""
    request = model_management_pb2.ReloadConfigRequest()
    for _ in range(random.randint(0, 2)):
        request.config.model_config_list.config.add(name="tiny", base_path="relative/path")
    return request.SerializeToString()


def rest_request(random):
    """The bytes that a client sends over a connection of its own."""
    if random.random() < 0.1:
        return b"~" + random.randbytes(random.randint(0, 300)) + b"\r\n\r\n"
    verb = random.choice(["predict", "predict", "classify", "regress", "explain", "PREDICT"])
    place = random.choice(
        ["", "", "/versions/3", "/versions/x", "/labels/a", "/versions/" + "9" * 30]
    )
    name = random.choice(["tiny", "tiny", "tiny", "other", "%ff", "t%00", "a/b", ""])
    path = f"/v1/models/{name}{place}:{verb}".encode()
    if random.random() < 0.1:
        path = random.choice(
            [b"/", b"", b"*", b"/v1/models", b"/v1/models/tiny/metadata", path * 99]
        )
    method = random.choice([b"POST"] * 8 + [b"GET", b"PUT", b"", b"\xff", b"DELETE"])
    body = random.choice([_kept, _kept, _mutated, _cut, _noise])(random, _document(random))
    length = str(len(body)).encode()
    if random.random() < 0.05:
        length = random.choice([b"-1", b"x", b"9" * 25, b"", b"0", b"1"])
    more = random.choice(
        [b""] * 8 + [b"Transfer-Encoding: chunked\r\n", b"X: " + b"y" * 70000 + b"\r\n"]
    )
    version = random.choice([b"HTTP/1.1"] * 9 + [b"HTTP/9.9", b"http", b""])
    host = random.choice([b"localhost"] * 9 + [b"example.com"])
    head = b"%s %s %s\r\nHost: %s\r\nConnection: close\r\nContent-Length: %s\r\n%s\r\n"
    return head % (method, path, version, host, length, more) + body


def _document(random):
    rows = [_value(random, 0) for _ in range(random.randint(0, 3))]
    document = {random.choice(["instances", "inputs", "examples", "x"]): rows}
    if random.random() < 0.5:
        document["signature_name"] = random.choice([*_SIGNATURES, 1, None, []])
    if random.random() < 0.1:
        document["context"] = _value(random, 0)
    if random.random() < 0.05:
        return b'{"instances": ' + b"[" * 3000 + b"]" * random.randint(0, 3000) + b"}"
    return json.dumps(document).encode()


def _value(random, depth):
    leaves = ["text", "", "\ud800", "é\0", 1, -1.5, 1e400, 10**30, None, True, {"b64": "YQ=="}]
    kind = random.random()
    if depth > 4 or kind < 0.4:
        return random.choice([*leaves, {"b64": "?"}, {"text": "a"}, float("nan")])
    if kind < 0.7:
        return [_value(random, depth + 1) for _ in range(random.randint(0, 3))]
    names = ["text", "token_ids", "padding_mask", "b64", ""]
    return {random.choice(names): _value(random, depth + 1) for _ in range(random.randint(0, 3))}


def valid_request():
    """A request that must always be answered."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "tiny"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(["abc"]))
    return request


# --- the server's part ---


def grpc_code(channel, path, message):
    try:
        channel.unary_unary(path)(message, timeout=60)
    except grpc.RpcError as error:
        return error.code()
    return None


def rest_status(client, message):
    """The status of the answer; None for none at all, as to an empty line."""
    host, port = client.rest_url.removeprefix("http://").split(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(message)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(65536):
            received += part
    return int(re.match(rb"HTTP/1\.1 ([0-9]{3}) ", received)[1]) if received else None


@pytest.mark.parametrize("number", [200, pytest.param(5_000, marks=pytest.mark.slow)])
def test_malformed_requests(client, number):
    """As many over gRPC as over REST."""
    source = random.Random(number)
    codes, statuses, sizes = set(), set(), []
    with grpc.insecure_channel(client.target) as channel:
        for index in range(number):
            if index in (number // 2, number - 1):
                sizes.append((psutil.Process().memory_info().rss, threading.active_count()))
            path, message = grpc_request(source)
            code = grpc_code(channel, path, message)
            assert code in CODES, (path, message)
            codes.add(code)
            message = rest_request(source)
            status = rest_status(client, message)
            assert status in STATUSES or not message.splitlines()[0].strip(), message
            statuses.add(status)
    assert codes == CODES
    assert {400, 403, 404, 501} <= statuses
    response = client.prediction.Predict(valid_request(), timeout=30)
    assert list(response.outputs["num_tokens"].int_val) == [3]
    (memory, threads), (memory_later, threads_later) = sizes
    assert memory_later - memory < MAX_GROWTH_BYTES
    assert threads_later <= threads + 4

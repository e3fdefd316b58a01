"""The soak's requests (good, malformed, oversized, abandoned) and the allowed outcomes."""

import http.client
import json
import random
import socket
import struct
import threading
import time

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest
from tensorflow_serving.apis.inference_pb2 import MultiInferenceRequest
from tensorflow_serving.apis.model_service_pb2_grpc import ModelServiceStub
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

from tests.serving.server.hostile_requests import COMPRESSED, DOCUMENTS, MESSAGES

LABELS = ["negative", "positive"]
TEXTS = [
    "a joy to watch",
    "a waste of time, and a long one",
    "the staff were kind and the rooms were clean. " * 12,
    "he closed the door behind him, and nobody ever saw him again. " * 8,
]
_TIMEOUT = 30.0  # seconds
_IDLE = 10.0  # seconds after which an idle connection is not used again: the server closes it
_MODEL = "/v1/models/model"
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_MANY = 80  # more calls than the server runs and lets wait
_TOO_LONG = 17 * 2**20
_REFUSED = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "400", "404"}
_CALLS = {
    PredictRequest: "Predict",
    ClassificationRequest: "Classify",
    RegressionRequest: "Regress",
    MultiInferenceRequest: "MultiInference",
}


class Answers:
    """The right answers of each version.

    Args:
        scores: for each export, float `[len(TEXTS), len(LABELS)]`.

    Attributes:
        exports: dict from a version's number to the index of the export that it is a copy of.
    """

    def __init__(self, scores):
        self._scores = scores
        self.exports = {1: 1}

    def judge(self, version, rows, scores, labels=None):
        """Returns OK or WRONG; without a version, any of the exports may have answered."""
        scores = np.array(scores)
        exports = set(self.exports.values()) if version is None else {self.exports.get(version)}
        right = any(
            scores.shape == (len(rows), len(LABELS))
            and np.allclose(scores, self._scores[each][rows], atol=1e-4)
            for each in exports - {None}
        )
        chosen = [LABELS[index] for index in scores.argmax(axis=-1)]
        return "OK" if right and labels in (None, chosen) else "WRONG"


class Mix:
    """Requests of all kinds, for `measure` and `arrive`.

    Args:
        answers: `Answers`.

    Attributes:
        kinds: the kind of each request, in the order in which they are sent, again and again.
        expected: dict from kind to the allowed outcomes.
    """

    def __init__(self, port, rest_port, answers):
        self._port, self._rest_port, self._answers = port, rest_port, answers
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._prediction = PredictionServiceStub(self._channel)
        self._status = ModelServiceStub(self._channel)
        self._latest = 1
        self._own = threading.local()
        busy, rest_busy, gone = {"OK", "RESOURCE_EXHAUSTED"}, {"OK", "429"}, {"left"}
        # By kind: what sends a request, how many there are, and the allowed outcomes.
        table = {
            "gRPC Predict": (self._predict, 60, busy),
            "gRPC Classify": (self._classify, 30, busy),
            "REST predict, rows": (self._rest_rows, 30, rest_busy),
            "REST predict, one version": (self._rest_version, 15, {*rest_busy, "404"}),
            "gRPC status": (self._grpc_status, 4, {"OK"}),
            "REST status": (lambda _: self._get(_MODEL), 4, {"OK"}),
            "REST metrics": (lambda _: self._get("/metrics"), 4, {"OK"}),
            "gRPC, malformed": (self._malformed, 10, busy | _REFUSED),
            "REST, malformed": (self._rest_malformed, 10, rest_busy | _REFUSED),
            "gRPC, hostile gzip": (self._hostile_gzip, 5, {"RESOURCE_EXHAUSTED"} | _REFUSED),
            "gRPC, silent": (self._grpc_silent, 2, gone),
            "REST, not UTF-8": (self._not_utf8, 3, {"400", "429"}),
            "REST, another Host": (self._other_host, 3, {"403"}),
            "gRPC, too long": (self._too_long, 1, {"RESOURCE_EXHAUSTED"}),
            "REST, too long": (self._rest_too_long, 2, {"400"}),
            "REST, too many rows": (self._too_many_rows, 1, {"400", "429"}),
            "gRPC, many empty entries": (self._many_entries, 1, {"RESOURCE_EXHAUSTED"}),
            "gRPC, no message": (self._no_message, 4, gone),
            "gRPC, cancelled": (self._cancel, 3, {*gone, "OK"}),
            "gRPC, many cancelled": (self._cancel_many, 2, gone),
            "gRPC, connection reset": (self._grpc_reset, 2, gone),
            "REST, reset before the answer": (self._reset_whole, 3, gone),
            "REST, reset in the body": (self._reset_half, 3, gone),
            "REST, silent in the body": (self._silent, 1, {"408"}),
        }
        self._asks = {kind: ask for kind, (ask, _, _) in table.items()}
        self.expected = {kind: expected for kind, (_, _, expected) in table.items()}
        self.kinds = [kind for kind, (_, weight, _) in table.items() for _ in range(weight)]
        random.Random(0).shuffle(self.kinds)

    def ask(self, number):
        """Sends a request; returns OK, WRONG, left, gRPC's code, HTTP's status or an error."""
        try:
            return self._asks[self.kinds[number % len(self.kinds)]](number)
        except grpc.RpcError as error:
            return error.code().name
        except Exception as error:
            self._connection().close()
            return type(error).__name__

    def _predict(self, number):
        rows = _rows(number)
        request = PredictRequest()
        request.model_spec.name = "model"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto([TEXTS[row] for row in rows]))
        reply = self._prediction.Predict(request, timeout=_TIMEOUT)
        self._latest = version = reply.model_spec.version.value
        labels = [label.decode() for label in tf.make_ndarray(reply.outputs["label"])]
        scores = tf.make_ndarray(reply.outputs["scores"])
        return self._answers.judge(version, rows, scores, labels)

    def _classify(self, number):
        rows = _rows(number)
        request = ClassificationRequest()
        request.model_spec.name = "model"
        request.model_spec.signature_name = "classify"
        for row in rows:
            example = request.input.example_list.examples.add()
            example.features.feature["text"].bytes_list.value.append(TEXTS[row].encode())
        reply = self._prediction.Classify(request, timeout=_TIMEOUT)
        found = [
            {each.label: each.score for each in row.classes} for row in reply.result.classifications
        ]
        scores = [[row[name] for name in LABELS] for row in found]
        return self._answers.judge(reply.model_spec.version.value, rows, scores)

    def _rest_rows(self, number, path=_MODEL, version=None):
        rows = _rows(number)
        status, reply = self._post(f"{path}:predict", {"instances": [TEXTS[row] for row in rows]})
        if status != "OK":
            return status
        predictions = json.loads(reply)["predictions"]
        labels = [each["label"] for each in predictions]
        return self._answers.judge(version, rows, [each["scores"] for each in predictions], labels)

    def _rest_version(self, number):
        version = self._latest
        return self._rest_rows(number, f"{_MODEL}/versions/{version}", version)

    def _grpc_status(self, number):
        request = GetModelStatusRequest()
        request.model_spec.name = "model"
        self._status.GetModelStatus(request, timeout=_TIMEOUT)
        return "OK"

    def _malformed(self, number):
        name, content = random.choice(MESSAGES)
        [request] = [kind.FromString(content) for kind in _CALLS if kind.__name__ == name]
        if not isinstance(request, MultiInferenceRequest):
            request.model_spec.name = "model"
        getattr(self._prediction, _CALLS[type(request)])(request, timeout=_TIMEOUT)
        return "OK"

    def _rest_malformed(self, number):
        call = random.choice(("predict", "classify", "regress", "explain"))
        return self._post(f"{_MODEL}:{call}", random.choice(DOCUMENTS))[0]

    def _hostile_gzip(self, number):
        self._channel.unary_unary(_PREDICT)(random.choice(COMPRESSED), timeout=_TIMEOUT)
        return "OK"

    def _grpc_silent(self, number):
        with self._sent(b"", self._port):
            time.sleep(random.uniform(0.0, 2.0))
        return "left"

    def _other_host(self, number):
        head = f"GET {_MODEL} HTTP/1.1\r\nHost: example.com\r\n\r\n"
        with self._sent(head.encode()) as connected:
            return _status_of(connected)

    def _too_long(self, number):
        request = PredictRequest()
        request.model_spec.name = "model"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto([b"a" * _TOO_LONG]))
        self._prediction.Predict(request, timeout=_TIMEOUT)
        return "OK"

    def _rest_too_long(self, number):
        with self._sent(_head(_TOO_LONG)) as connected:
            return _status_of(connected)

    def _too_many_rows(self, number):
        return self._post(f"{_MODEL}:predict", {"instances": ["a"] * 300})[0]

    def _cancel(self, number):
        request = PredictRequest()
        request.model_spec.name = "model"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(TEXTS))
        call = self._prediction.Predict.future(request)
        time.sleep(random.uniform(0.0, 0.05))
        return "left" if call.cancel() else "OK"

    def _cancel_many(self, number):
        """More than may run and wait, without a deadline."""
        request = PredictRequest()
        request.model_spec.name = "model"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(TEXTS))
        calls = [self._prediction.Predict.future(request) for _ in range(_MANY)]
        time.sleep(random.uniform(0.0, 0.2))
        for call in calls:
            call.cancel()
        return "left"

    def _no_message(self, number):
        self.begin(random.choice((1, _MANY)), random.uniform(0.0, 2.0))
        return "left"

    def begin(self, count, seconds):
        """Begins calls whose message never comes, and cancels them after some time."""
        ended = threading.Event()

        def nothing():
            ended.wait(_TIMEOUT)
            yield from ()

        call = self._channel.stream_unary(_PREDICT)
        calls = [call.future(nothing()) for _ in range(count)]
        time.sleep(seconds)
        for each in calls:
            each.cancel()
        ended.set()

    def _many_entries(self, number):
        self._channel.unary_unary(_PREDICT)(b"\x12\x00" * 2**23, timeout=_TIMEOUT)
        return "OK"

    def _not_utf8(self, number):
        return self._post(f"{_MODEL}:predict", '{"instances": ["Kündigung"]}'.encode("cp1252"))[0]

    def _grpc_reset(self, number):
        begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0" + b"\0\1\0\1\4"
        return self._reset(begin, self._port)

    def _reset_whole(self, number):
        body = json.dumps({"instances": TEXTS}).encode()
        return self._reset(_head(len(body)) + body)

    def _reset_half(self, number):
        return self._reset(_head(1000) + b'{"instances": ["a')

    def _reset(self, content, port=None):
        with self._sent(content, port) as connected:
            time.sleep(random.uniform(0.0, 0.05))
            # Closing a socket that does not linger resets the connection.
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return "left"

    def _silent(self, number):
        with self._sent(_head(1000) + b'{"instances": ["a') as connected:
            connected.settimeout(2 * _TIMEOUT)
            return _status_of(connected)

    def _sent(self, content, port=None):
        connected = socket.create_connection(("127.0.0.1", port or self._rest_port), _TIMEOUT)
        connected.sendall(content)
        return connected

    def _get(self, path):
        return self._exchange("GET", path)[0]

    def _post(self, path, document):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return self._exchange("POST", path, body)

    def _exchange(self, method, path, body=None):
        connection = self._connection()
        connection.request(method, path, body)
        response = connection.getresponse()
        content = response.read()
        return "OK" if response.status == 200 else str(response.status), content

    def _connection(self):
        """Returns this thread's connection to the server."""
        own, now = self._own, time.monotonic()
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection(
                "127.0.0.1", self._rest_port, timeout=_TIMEOUT
            )
        elif now - own.used > _IDLE:
            own.connection.close()
        own.used = now
        return own.connection


def _rows(number):
    """Returns the indices of the texts that a request has: one, or all."""
    chosen = number // 7 % (len(TEXTS) + 1)
    return [chosen] if chosen < len(TEXTS) else list(range(len(TEXTS)))


def _head(length):
    head = f"POST {_MODEL}:predict HTTP/1.1\r\nHost: localhost\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n".encode()


def _status_of(connected):
    """Returns the status of a reply."""
    return connected.makefile("rb").readline().split()[1].decode()

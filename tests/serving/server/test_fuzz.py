"""Fuzzing of what strangers send: no INTERNAL, no traceback, and memory in proportion.

`make test` tries a hundred requests of each kind and all of `hostile_requests`; `make fuzz` tries
thousands.
"""

import contextlib
import json
import tracemalloc

import grpc
import numpy as np
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef
from tensorflow_serving.apis import prediction_service_pb2

from serving.server import grpc_service, rest_service
from serving.server.errors import ServingError
from serving.server.inference import Resources
from serving.server.limits import Admission, Budget, Receiving, RequestLimits
from serving.server.prometheus_metrics import Metrics
from serving.server.rest_service import RestCalls
from tests.serving.server.hostile_requests import COMPRESSED, DOCUMENTS, MESSAGES

_BYTES_PER_BYTE = 200  # of peak memory
_BYTES_FOR_ANY = 2**18  # whatever the request
_LIMITS = RequestLimits(256, 2**20)
_SERVICE = prediction_service_pb2.DESCRIPTOR.services_by_name["PredictionService"]
_METHODS = [method.name for method in _SERVICE.methods]

names = st.sampled_from(["text", "x", "y", "instances", "inputs", "examples", "context", "b64", ""])
texts = st.text(max_size=5) | st.sampled_from(["\ud800", "\udcff", "\ud83d\ude00", "a" * 3000])
numbers = st.integers(-(2**70), 2**70) | st.sampled_from([10**400, -(10**400), 2**63, 2**31])
leaves = st.none() | st.booleans() | numbers | st.floats() | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names | texts, inner, max_size=3),
    max_leaves=12,
)
json_objects = st.fixed_dictionaries(
    {},
    optional={
        "instances": st.lists(values, max_size=4) | values,
        "inputs": st.dictionaries(names, values, max_size=3) | values,
        "examples": st.lists(st.dictionaries(names | texts, values, max_size=3), max_size=4),
        "context": st.dictionaries(names, values, max_size=2) | values,
        "signature_name": st.sampled_from(["classify", "tokens", "echo", "no"]) | values,
    },
)


@st.composite
def spoilt(draw, contents):
    """Bytes with some replaced, left out or added, or none."""
    content = bytearray(draw(contents))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(content)))
        end = start + draw(st.integers(0, 4))
        content[start:end] = draw(st.binary(max_size=4))
    return bytes(content)


bodies = spoilt(
    st.sampled_from(DOCUMENTS)
    | json_objects.map(lambda document: json.dumps(document).encode())
    | json_objects.map(
        lambda document: json.dumps(document, ensure_ascii=False).encode(errors="surrogatepass")
    )
    | st.binary(max_size=50)
)


def _signature():
    signature = SignatureDef()
    for name, dtype in (("text", 7), ("x", 1), ("y", 10), ("z", 9)):
        signature.inputs[name].dtype = dtype
    return signature


def _with_seeds(seeds):
    def decorate(test):
        for seed in seeds:
            test = example(seed)(test)
        return test

    return decorate


@contextlib.contextmanager
def bounded_memory(length):
    """Fails if the body of a `with` statement takes more memory than so long a request may."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= _BYTES_FOR_ANY + _BYTES_PER_BYTE * length, (peak, length)


@_with_seeds(DOCUMENTS)
@given(bodies)
def test_documents(body):
    """They are parsed, or refused in words."""
    signatures = _signature(), SignatureDef(inputs={"text": _signature().inputs["text"]})
    with bounded_memory(len(body)):
        try:
            document = rest_service.parse_document(body)
        except ServingError as error:
            assert error.code is grpc.StatusCode.INVALID_ARGUMENT
            return
        for signature in signatures:
            with contextlib.suppress(ServingError):
                tensors = rest_service.read_inputs(document, signature)
                assert all(isinstance(each, TensorProto) for each in tensors.values())
        with contextlib.suppress(ServingError):
            rest_service.read_examples(document, Budget(_LIMITS))
        with contextlib.suppress(ServingError):
            rest_service.read_signature_name(document)


REPEATED = [  # what is in the list: much memory for few bytes
    b"[]",
    b"{}",
    b"0",
    b"9.5",
    b'""',
    b'"\xc3\xa9"',
    b'"\xf0\x9f\x98\x80"',
    b'{"b64":""}',
    b'{"":0}',
    b'{"x":1,"y":true}',
    b"[[[[[[[[0]]]]]]]]",
    b"[" * 200 + b"]" * 200,
    b'{"a":' * 200 + b"0" + b"}" * 200,
    b'"' + b"\\u00e9" * 50 + b'"',
    b'"' + b"x" * 10**5 + b'"',
]


@pytest.mark.parametrize("key", ["instances", "inputs", "examples", "signature_name"])
@pytest.mark.parametrize("item", REPEATED)
def test_memory_of_large_documents(key, item):
    items = b",".join([item] * (10**5 // len(item) or 1))
    test_documents.hypothesis.inner_test(b'{"%s": [%s]}' % (key.encode(), items))


@given(
    st.lists(st.lists(st.binary(max_size=6), min_size=2, max_size=2), min_size=1, max_size=5),
)
def test_valid_documents_are_read_as_numpy_reads_them(rows):
    texts_of = [[text.decode("latin-1") for text in row] for row in rows]
    body = json.dumps({"instances": texts_of}).encode()
    signature = SignatureDef(inputs={"text": _signature().inputs["text"]})
    found = rest_service.read_inputs(rest_service.parse_document(body), signature)["text"]
    array = np.array(texts_of, object)
    assert [dim.size for dim in found.tensor_shape.dim] == list(array.shape)
    assert [each.decode() for each in found.string_val] == array.ravel().tolist()


def _resources(client):
    metrics = Metrics()
    return Resources(client.models, metrics, Admission(1, 0, metrics), _LIMITS)


@pytest.fixture(scope="module")
def rest(client):
    """Answers REST requests about the served model, in this process."""
    return RestCalls(_resources(client), timeout=20)


@pytest.fixture(scope="module")
def methods(client):
    """gRPC's methods on the served model, in this process: functions of messages and a context."""
    service, *_ = grpc_service.handlers(_resources(client), Receiving())
    paths = {name: f"/{_SERVICE.full_name}/{name}" for name in _METHODS}
    return {name: service.service(_Details(path)).stream_unary for name, path in paths.items()}


class _Details:
    """What gRPC asks a service's handlers about."""

    invocation_metadata = ()

    def __init__(self, method):
        self.method = method


class _Context:
    """gRPC's context of a request, as far as it is used."""

    code = None

    def time_remaining(self):
        return 20.0

    def add_callback(self, callback):
        return True

    def abort(self, code, message):
        assert len(message.encode()) <= 1024
        self.code = code
        raise _Aborted


class _Aborted(Exception):
    pass


_FOUR_HUNDREDS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
}
_GIVEN = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@_GIVEN
@_with_seeds([("predict", body) for body in DOCUMENTS])
@_with_seeds([("classify", body) for body in DOCUMENTS])
@given(st.tuples(st.sampled_from(["predict", "classify", "regress"]), bodies))
def test_rest_calls(rest, request_):
    verb, body = request_
    try:
        reply = rest.answer("POST", f"/v1/models/tiny:{verb}", body)
    except ServingError as error:
        assert error.code in _FOUR_HUNDREDS, error
    else:
        assert isinstance(json.loads(reply.decode(errors="surrogateescape")), dict)


@_GIVEN
@given(st.sampled_from(["GET", "POST"]), st.text(max_size=12), st.sampled_from(["", "/", ":"]))
def test_paths(rest, method, end, separator):
    with contextlib.suppress(ServingError):
        rest.answer(method, f"/v1/models/tiny{separator}{end}", b"{}")


messages = st.sampled_from(MESSAGES) | st.tuples(
    st.sampled_from([message for message, _ in MESSAGES]), st.binary(max_size=60)
)


@_GIVEN
@_with_seeds([(*message, message[1]) for message in MESSAGES])
@_with_seeds([("PredictRequest", content, content) for content in COMPRESSED])
@given(messages.flatmap(lambda m: st.tuples(*map(st.just, m), spoilt(st.just(m[1])))))
def test_grpc_calls(methods, request_):
    kind, _, body = request_
    for name, method in methods.items():
        if _request_class(name).DESCRIPTOR.name == kind:
            context = _Context()
            try:
                assert method(iter([body]), context).IsInitialized()
            except _Aborted:
                too_long = {grpc.StatusCode.RESOURCE_EXHAUSTED} if body in COMPRESSED else set()
                assert context.code in _FOUR_HUNDREDS | too_long


def _request_class(name):
    return GetMessageClass(_SERVICE.methods_by_name[name].input_type)

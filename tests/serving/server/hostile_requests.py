"""Where fuzzing starts: requests that once led the server into an error."""

import gzip
import zlib

from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.inference_pb2 import MultiInferenceRequest
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

DOCUMENTS = [
    b'{"instances": ' + b"[" * 5000 + b"]" * 5000 + b"}",  # 32 s and 3.5 GB at a million
    b"[" * 400 + b"[]," * 2000 + b"[]" + b"]" * 400,
    b'{"inputs": ' + b'{"a":' * 300 + b"0" + b"}" * 300 + b"}",
    b'{"inputs": ' + b"[" * 100 + b"]" * 100 + b"}",  # more dimensions than NumPy takes
    b'{"instances": ["\\ud800"]}',
    b'{"instances": ["\\udcff"]}',  # once the byte 0xFF
    b'{"instances": [{"\\ud800": "a"}]}',
    b'{"instances": [{"\xff": "a"}]}',
    b'{"inputs": {"\xff": "a"}}',
    b'{"inputs": "a", "signature_name": "\xff"}',
    b'{"inputs": "a", "signature_name": "\\ud800"}',
    b'{"examples": [{"\xff": "a"}]}',
    b'{"examples": [{"text": "a"}], "signature_name": "\xff"}',
    b'{"instances": [' + b"1" * 400 + b"]}",
    b'{"inputs": {"x": [' + b"1" * 400 + b'], "y": [1e999]}, "signature_name": "numbers"}',
    b'{"examples": [{"x": [0.5, ' + b"1" * 400 + b"]}]}",
    b'{"inputs": ' + b"1" * 5000 + b"}",
    b'{"examples": [' + b"{}," * 999 + b'{}], "context": {"text": "' + b"x" * 9999 + b'"}}',
    b'{"instances": [["a", "b"]]}',
    b'{"instances": [[]]}',
    b'{"inputs": [[], [[]], ["a", ["b"]]]}',
    b'{"instances": [{"b64": "\xff"}, {"b64": ["YQ=="]}, {"b64": "YQ"}]}',
    b'{"instances": ["a"], "instances": ["b"], "inputs": null}',
    b'{"inputs": {"x": [NaN, -Infinity], "y": [true]}, "signature_name": "numbers"}',
    b'{"instances": [{"b64": "Y Q=\\n="}, {"b64": "====="}, {"b64": "\\u00e9"}, {"b64": null}]}',
    b"\xef\xbb\xbf{}",
    b"\xff\xfe{\x00}\x00",
]


def _tensor(dtype: int, *sizes: int, **values: object) -> TensorProto:
    tensor = TensorProto(dtype=dtype, **values)
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    return tensor


def _predict(tensor: TensorProto, signature: str = "", name: str = "text") -> PredictRequest:
    request = PredictRequest()
    request.model_spec.name = "tiny"
    request.model_spec.signature_name = signature
    request.inputs[name].CopyFrom(tensor)
    return request


def _with_context(made):
    made.model_spec.name = "tiny"
    shared = made.input.example_list_with_context
    shared.context.features.feature["text"].bytes_list.value.append(b"x" * 5000)
    for _ in range(1000):
        shared.examples.add()
    return made


_MESSAGES = [
    _predict(_tensor(7, *[2**62] * 80_000)),
    _predict(_tensor(7, 40_000)),
    _predict(_tensor(7, 10**12)),
    _predict(_tensor(7, 400, string_val=[b"x" * 10**5])),
    _predict(_tensor(7, 200, string_val=[b"x" * 10**5])),
    _predict(_tensor(7, 1, 2, string_val=[b"a", b"b"])),
    _predict(_tensor(7, 0, 2**62, 2**62)),
    _predict(_tensor(7, *[1] * 100, string_val=[b"a"])),
    _predict(_tensor(7, -1)),
    _predict(_tensor(3, 1, int_val=[-5]), "slow", "rounds"),
    _predict(_tensor(20, 1)),
    _predict(_tensor(21, 2**20)),
    _with_context(ClassificationRequest()),
    _with_context(RegressionRequest()),
    MultiInferenceRequest(),
]
EMPTY_ENTRIES = b"\x12\x00" * 2**17  # of the inputs; parsed, they take 89 times the memory
COMPRESSED = [  # as gRPC's clients compress messages, or as if
    gzip.compress(EMPTY_ENTRIES, mtime=0),
    zlib.compress(EMPTY_ENTRIES),
    gzip.compress(EMPTY_ENTRIES, mtime=0)[:-9],
    gzip.compress(b"\x12\x00" * 2**21, mtime=0),
    gzip.compress(_MESSAGES[0].SerializeToString(), mtime=0),
    b"\x1f\x8b\x08\x00",
    b"\x78\x9c",
]
MESSAGES = [(type(message).__name__, message.SerializeToString()) for message in _MESSAGES]

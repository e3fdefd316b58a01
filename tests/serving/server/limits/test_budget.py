"""The memory that a few bytes can ask for is limited before anything is expanded."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis.input_pb2 import Input

from serving.server.errors import ServingError
from serving.server.limits.budget import Budget, RequestLimits

BUDGET = Budget(RequestLimits(max_rows=256, max_bytes=2**16))


def tensor(dtype, *sizes, **values):
    proto = TensorProto(dtype=dtype, **values)
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    return proto


STRING, FLOAT, INT64 = 7, 1, 9
TOO_LARGE = [
    (tensor(STRING, 40_000), "at most 256 rows in a request, received 40000"),
    (tensor(STRING, 10**12), "at most 256 rows in a request, received 1000000000000"),
    (tensor(STRING, 257), "at most 256 rows in a request, received 257"),
    (tensor(STRING, 200, string_val=[b"x" * 1000]), "once it is expanded, received 204800"),
    (tensor(STRING, 1, 2731), "once it is expanded, received 65544"),
    (tensor(STRING, 2, string_val=[b"", b"x" * 65536]), "once it is expanded, received 65584"),
    (tensor(FLOAT, 128, 129), "once it is expanded, received 66048"),
    (tensor(INT64, 256, 2**40), "once it is expanded, received 2251799813685248"),
    (tensor(STRING, 0, 2**62), "once it is expanded, received "),
    (tensor(STRING, *[2**62] * 30), "at most 256 rows"),
    (tensor(STRING, 1, *[2**62] * 30), "once it is expanded, received "),
    (tensor(STRING, *[2**62] * 80_000), "at most 32 dimensions, received 80000"),
    (tensor(STRING, *[1] * 33), "at most 32 dimensions, received 33"),
    (tensor(STRING, 1, -1), "tensor parsing error: text"),
    (tensor(STRING, -1), "tensor parsing error: text"),
    (tensor(0, 1), "tensor parsing error: text"),
    (tensor(99, 1), "tensor parsing error: text"),
]


@pytest.mark.parametrize(("proto", "message"), TOO_LARGE)
def test_tensors_that_ask_for_too_much(proto, message):
    with pytest.raises(ServingError, match=message) as caught:
        BUDGET.check_inputs({"text": proto})
    assert caught.value.code.name == "INVALID_ARGUMENT"


def test_all_inputs_count_together():
    inputs = {name: tensor(FLOAT, 128, 100) for name in ("one", "two")}
    BUDGET.check_inputs({"one": inputs["one"]})
    with pytest.raises(ServingError, match="Input two: .* received 102400"):
        BUDGET.check_inputs(inputs)


@pytest.mark.parametrize(
    "proto",
    [
        tensor(STRING, string_val=[b"x" * 60_000]),
        tensor(STRING, 256, string_val=[b"x" * 200]),
        tensor(STRING, 0, 2**10),
        tensor(FLOAT, 16, 1024),
        tf.make_tensor_proto([[1, 2], [3, 4]]),
    ],
)
def test_tensors_within_the_limits(proto):
    BUDGET.check_inputs({"text": proto})
    Budget().check_inputs({"text": proto})


def examples(count, context=b""):
    made = Input()
    listed = made.example_list
    if context:
        listed = made.example_list_with_context
        listed.context.features.feature["text"].bytes_list.value.append(context)
    for _ in range(count):
        listed.examples.add()
    return made


def test_a_context_counts_once_for_every_example():
    BUDGET.check_examples(examples(200))
    BUDGET.check_examples(examples(1, b"x" * 30_000))
    with pytest.raises(ServingError, match="at most 256 rows in a request, received 1000"):
        BUDGET.check_examples(examples(1000, b"x" * 1000))
    with pytest.raises(ServingError, match="at most 65536 bytes in a request once it is expanded"):
        BUDGET.check_examples(examples(100, b"x" * 1000))


def test_outputs():
    BUDGET.check_outputs({"x": np.zeros(2**14, np.float32)})
    for outputs in (
        {"x": np.zeros(2**13, np.float32), "y": np.zeros(2**13, np.int64)},
        {"x": np.array([b"x" * 2**15] * 2, object)},
    ):
        with pytest.raises(ServingError, match="at most 65536 bytes .* ask for fewer") as caught:
            BUDGET.check_outputs(outputs)
        assert caught.value.code.name == "RESOURCE_EXHAUSTED"


def test_time():
    assert Budget().seconds_left() is None
    assert 0 < Budget(seconds=60).seconds_left() <= 60
    assert Budget(seconds=-1).seconds_left() < 0
    Budget().check_time()
    Budget(seconds=60).check_time()
    with pytest.raises(ServingError, match="Timed out while the reply was written") as caught:
        Budget(seconds=-1).check_time()
    assert caught.value.code.name == "DEADLINE_EXCEEDED"

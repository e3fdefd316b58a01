"""The memory that a few bytes can ask for is limited before anything is expanded."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.input_pb2 import Input
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from serving.server.errors import ServingError
from serving.server.limits import one_request
from serving.server.limits.one_request import Budget, RequestLimits
from tests.serving.server.hostile_requests import EMPTY_ENTRIES

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
    left = Budget(seconds=60)
    left.cancel()
    with pytest.raises(ServingError, match="The client left before the run began") as caught:
        left.check_time("before the run began")
    assert caught.value.code.name == "CANCELLED"


def number_of_fields(message):
    """The fields that protocol buffers' own parser finds in a message and in those in it."""
    count = 0
    for field, value in message.ListFields():
        if field.message_type and field.message_type.GetOptions().map_entry:
            nested = field.message_type.fields_by_name["value"].message_type
            count += 3 * len(value)
            count += sum(map(number_of_fields, value.values())) if nested else 0
        elif field.message_type:
            several = value if field.is_repeated else [value]
            count += len(several) + sum(map(number_of_fields, several))
        else:
            count += 1 if field.is_packed or not field.is_repeated else len(value)
    return count


def predict_request():
    request = PredictRequest(output_filter=["scores", ""])
    request.model_spec.version.value = 2**40
    request.inputs["long" * 100].CopyFrom(tensor(STRING, 3, string_val=[b"a" * 200, b"", b"b"]))
    request.inputs["x"].CopyFrom(tensor(FLOAT, 1, -1, float_val=[0.5] * 50))
    request.inputs["y"].CopyFrom(tensor(INT64, tensor_content=b"c" * 300))
    return request


def classification_request():
    request = ClassificationRequest(input=examples(5, b"x" * 300))
    request.model_spec.name = "tiny"
    return request


@pytest.mark.parametrize(
    "message",
    [
        predict_request(),
        classification_request(),
        PredictRequest.FromString(EMPTY_ENTRIES[:2]),
        PredictRequest(output_filter=[""] * 300),
        tensor(STRING, *[1] * 300),
    ],
)
def test_fields_are_counted_before_a_message_is_parsed(monkeypatch, message):
    body, number = message.SerializeToString(), number_of_fields(message)
    for most, is_too_much in ((number, False), (number - 1, True)):
        monkeypatch.setattr(one_request, "MOST_FIELDS", most)
        assert one_request.has_too_many_fields(body, message.DESCRIPTOR) == is_too_much
        # The parser refuses what is cut off; until then, fields count.
        assert one_request.has_too_many_fields(body[:-1], message.DESCRIPTOR) in (
            False,
            is_too_much,
        )


@pytest.mark.parametrize(
    ("body", "is_too_much"),
    [
        (b"\x12\x00" * 2**19, True),
        (b"\x12\x02\x12\x00" * 2**18, True),  # entries with an empty tensor
        (b"\x38\x01" * 2**19, True),  # fields that the message does not have
        (b"\x12\x80\x80\x40" + b"a" * 2**20, False),
        (b"\xff" * 2**20, False),
        (b"\x12" + b"\x80" * 2**20, False),
    ],
)
def test_messages_of_many_fields(body, is_too_much):
    assert one_request.has_too_many_fields(body, PredictRequest.DESCRIPTOR) == is_too_much

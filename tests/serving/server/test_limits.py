"""What one request may use, and which requests run, wait or are refused under overload."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from grpc import StatusCode
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.input_pb2 import Input
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from serving.server import limits
from serving.server.errors import ServingError
from serving.server.limits import Admission, Budget, RequestLimits
from serving.server.prometheus_metrics import Metrics
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
        monkeypatch.setattr(limits, "MOST_FIELDS", most)
        assert limits.has_too_many_fields(body, message.DESCRIPTOR) == is_too_much
        # The parser refuses what is cut off; until then, fields count.
        assert limits.has_too_many_fields(body[:-1], message.DESCRIPTOR) in (
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
    assert limits.has_too_many_fields(body, PredictRequest.DESCRIPTOR) == is_too_much


@pytest.fixture
def full():
    """An admission where two requests run until they are let go."""
    metrics = Metrics()
    admission, ended = Admission(2, 3, metrics), threading.Event()
    begun = threading.Barrier(3)

    def run():
        with admission.admitted(Budget()):
            begun.wait(30)
            ended.wait(30)

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(run) for _ in range(2)]
        begun.wait(30)
        try:
            yield admission, metrics, ended
        finally:
            ended.set()
            for each in running:
                each.result()


def waiting(metrics):
    [line] = [
        line
        for line in metrics.page().decode().splitlines()
        if line.startswith(":gpt1_keras:serving:queued_requests ")
    ]
    return float(line.split()[1])


def test_first_come_first_served_and_no_more_than_may_wait(full):
    admission, metrics, ended = full
    order = []

    def wait_for_turn(number):
        with admission.admitted(Budget()):
            order.append(number)

    with ThreadPoolExecutor(3) as pool:
        for number in range(3):
            pool.submit(wait_for_turn, number)
            while waiting(metrics) != number + 1:
                pass
        with pytest.raises(
            ServingError, match="2 requests run and 3 wait, as many as may"
        ) as caught:
            wait_for_turn(3)
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        ended.set()
    assert sorted(order) == [0, 1, 2]
    assert waiting(metrics) == 0
    wait_for_turn(4)  # there is room again
    page = metrics.page().decode()
    assert ":gpt1_keras:serving:running_requests 0.0" in page
    assert ":gpt1_keras:serving:queued_requests_limit 3.0" in page


def test_a_request_whose_time_runs_out_leaves_the_queue(full):
    admission, metrics, _ = full
    for seconds in 0.02, -1.0:
        with pytest.raises(ServingError, match="Timed out while waiting for a turn") as caught:
            with admission.admitted(Budget(seconds=seconds)):
                pass
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
    assert waiting(metrics) == 0


def test_a_request_whose_client_leaves_leaves_the_queue(full):
    admission, metrics, _ = full
    budget = Budget(seconds=30)

    def wait_for_turn():
        with admission.admitted(budget):
            pass

    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(wait_for_turn)
        while waiting(metrics) != 1:
            assert not left.done()
        budget.cancel()
        for refused in left.result, wait_for_turn:  # also one that comes only now
            with pytest.raises(ServingError, match="client left while waiting for") as caught:
                refused()
            assert caught.value.code is StatusCode.CANCELLED
    assert waiting(metrics) == 0


def test_the_bytes_of_all_requests_together():
    """Small requests do not count, so that large ones cannot keep them out."""
    admission = Admission(1, 1, Metrics(), max_bytes=2**17)
    with admission.held() as first, admission.held() as second, admission.held() as third:
        for hold in first, second:
            for _ in range(2):
                hold(2**16)
        for hold in third, first:
            with pytest.raises(ServingError, match="131072 bytes, of at most 131072") as caught:
                hold(2**16 + 1)
            assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        with admission.held() as small:
            small(2**16)
    with admission.held() as again:
        again(2**17)


@pytest.mark.parametrize("seconds", [None, 1e10, 2.0**63 / 1e9, 2.0**63, float("inf")])
def test_a_request_without_a_deadline_waits(full, seconds):
    """gRPC gives it one that no thread can wait for."""
    admission, metrics, ended = full

    def wait_for_turn():
        with admission.admitted(Budget(seconds=seconds)):
            return "answered"

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(wait_for_turn)
        while waiting(metrics) != 1:
            assert not answer.done() or answer.result()
        ended.set()
        assert answer.result(30) == "answered"
    assert waiting(metrics) == 0


def test_a_request_that_fails_makes_room(full):
    admission, metrics, ended = full
    ended.set()
    for _ in range(5):
        with pytest.raises(KeyError), admission.admitted(Budget()):
            raise KeyError
    with admission.admitted(Budget()):
        assert ":gpt1_keras:serving:queued_requests 0.0" in metrics.page().decode()

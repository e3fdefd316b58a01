"""What one request may use, how many run and wait, and how long a call may take to be sent."""

import functools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf.descriptor import Descriptor
from grpc import StatusCode
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.framework.types_pb2 import DT_STRING
from tensorflow_serving.apis.input_pb2 import Input

from serving.server.errors import ServingError, invalid_argument, malformed_tensor
from serving.server.prometheus_metrics import Metrics

MOST_FIELDS = 2**18  # more than the choices of the largest request, 256 times 512
_MOST_VARINT_BYTES = 10
_FIXED_SIZES = {1: 8, 5: 4}  # by the number of the field's wire type
_VARINT, _LENGTH_AND_BYTES = 0, 2

MAX_DIMENSIONS = 32  # more than any model's; the runtime takes 254, and NumPy 64
_LONGEST_SECONDS = 1e9  # 30 years; threads cannot wait much longer
_STRING_BYTES = 24  # of a string in the runtime, besides its content

MOST_CALLS = 64  # that may take their time to send their message
_MESSAGE_SECONDS = 120.0  # until it has to be whole, as over REST
_CROWDED_SECONDS = 0.5  # for calls beyond `MOST_CALLS`, the oldest first

_FREE_BYTES = 2**16  # of each request, which do not count: large ones keep out no small ones


def has_too_many_fields(body: bytes, message: Descriptor) -> bool:
    """Returns whether a message, with the messages in it, has more than `MOST_FIELDS` fields.

    An empty entry of a map has two bytes, and 89 times as many once it is parsed. Meanwhile, the
    parser holds Python's interpreter. Malformed messages are left to it.
    """
    if len(body) < 2 * MOST_FIELDS:
        return False  # no field is shorter than two bytes
    count, at, end, nested = 0, 0, len(body), _messages(message)
    outer: list[tuple[int, int, Mapping[int, Descriptor]]] = []  # where the outer messages go on
    try:
        while True:
            if at >= end:
                if not outer:
                    return False
                at, end, nested = outer.pop()
                continue
            count += 1
            if count > MOST_FIELDS:
                return True
            tag, at = body[at], at + 1
            if tag > 127:
                tag, at = _varint(body, at - 1)
            wire_type = tag & 7
            if wire_type in _FIXED_SIZES:
                at += _FIXED_SIZES[wire_type]
            elif wire_type in (_VARINT, _LENGTH_AND_BYTES):
                number, at = body[at], at + 1
                if number > 127:
                    number, at = _varint(body, at - 1)
                if wire_type == _VARINT or not number:
                    continue
                if tag >> 3 in nested:
                    outer.append((at + number, end, nested))
                    end, nested = min(at + number, end), _messages(nested[tag >> 3])
                else:
                    at += number
    except IndexError:  # it is cut off
        return False


def _varint(body: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(_MOST_VARINT_BYTES):
        byte = body[at + place]
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number, at + place + 1
    raise IndexError


@functools.cache
def _messages(message: Descriptor) -> Mapping[int, Descriptor]:
    return {each.number: each.message_type for each in message.fields if each.message_type}


@dataclass(frozen=True)
class RequestLimits:
    """How large one request may be once it is expanded.

    A few bytes can expand to many: a tensor's shape with one value for all elements, or one context
        for a thousand examples.

    Args:
        max_rows: the most examples.
        max_bytes: the most bytes of all tensors, or of all examples with their context, in the
            runtime; and of all outputs.
    """

    max_rows: float = math.inf
    max_bytes: float = math.inf


class Budget:
    """What one request may use. Its time begins when the budget is made, and ends with `cancel`.

    Args:
        limits: how large the request may be; None for no limit.
        seconds: the time until it must be answered; None for no limit. gRPC gives 292 billion years
            if a client sets no deadline.
    """

    def __init__(self, limits: RequestLimits | None = None, seconds: float | None = None) -> None:
        self._limits = limits or RequestLimits()
        if seconds is not None and seconds > _LONGEST_SECONDS:
            seconds = None
        self._end = None if seconds is None else time.monotonic() + seconds
        self._is_cancelled = False
        self._awaited: threading.Event | None = None

    def cancel(self) -> None:
        """Ends the request's time, as its client does not wait any more. Any thread may call it."""
        self._is_cancelled = True
        if self._awaited:
            self._awaited.set()

    def wait(self, event: threading.Event) -> None:
        """Waits until an event is set, by `cancel` at the latest, or the time has run out."""
        self._awaited = event
        if not self._is_cancelled:  # later, `cancel` sees the event
            event.wait(self.seconds_left())

    def seconds_left(self) -> float | None:
        """Returns the seconds until the request must be answered, negative if they are over."""
        return None if self._end is None else self._end - time.monotonic()

    def check_time(self, when: str = "while the reply was written") -> None:
        """Refuses to go on once the time is over."""
        left = self.seconds_left()
        if self._is_cancelled or left is not None and left <= 0:
            raise self.refusal(when)

    def refusal(self, when: str) -> ServingError:
        """Returns the error for a request whose time is over, and `when` that was found."""
        left = self.seconds_left()
        if self._is_cancelled and (left is None or left > 0):
            return ServingError(StatusCode.CANCELLED, f"The client left {when}")
        return ServingError(StatusCode.DEADLINE_EXCEEDED, f"Timed out {when}")

    def check_outputs(self, outputs: Mapping[str, np.ndarray]) -> None:
        """Refuses outputs that are too large, before a reply is made of them."""
        size = sum(array.nbytes for array in outputs.values())
        for array in outputs.values():
            if array.dtype == object:
                size += sum(map(len, array.flat))
        if size > self._limits.max_bytes:
            raise ServingError(
                StatusCode.RESOURCE_EXHAUSTED,
                f"Expected outputs of at most {self._limits.max_bytes} bytes (--max_request_bytes),"
                f" and the answer has {size}: ask for fewer rows at once",
            )

    def check_inputs(self, inputs: Mapping[str, TensorProto]) -> None:
        """Refuses tensors that are malformed or too large, before anything is expanded."""
        expanded = 0
        for alias, proto in inputs.items():
            dims = proto.tensor_shape.dim
            if len(dims) > MAX_DIMENSIONS:
                raise invalid_argument(
                    f"Input {alias}: expected at most {MAX_DIMENSIONS} dimensions, received "
                    f"{len(dims)}"
                )
            if any(dim.size < 0 for dim in dims):
                raise malformed_tensor(alias)
            if dims:
                self.check_rows(f"Input {alias}", dims[0].size)
            # A size of 0 counts as 1, as beside it a size of 2^62 could still break the reply.
            elements = math.prod(max(1, dim.size) for dim in dims)
            expanded += _expanded_bytes(alias, proto, elements)
            self._check_bytes(f"Input {alias}", expanded)

    def check_examples(self, examples: Input) -> None:
        """Refuses tf.Examples that are too many, or too large together with their context."""
        if examples.WhichOneof("kind") == "example_list_with_context":
            shared = examples.example_list_with_context
            count, context = len(shared.examples), shared.context.ByteSize()
        else:
            count, context = len(examples.example_list.examples), 0
        self.check_rows("Input", count)
        self._check_bytes("Input", examples.ByteSize() + count * (context + _STRING_BYTES))

    def check_rows(self, what: str, rows: int) -> None:
        """Refuses more rows than a request may have; `what` names them in the message."""
        if rows > self._limits.max_rows:
            raise invalid_argument(
                f"{what}: expected at most {self._limits.max_rows} rows in a request, received "
                f"{rows} (--max_request_rows)"
            )

    def _check_bytes(self, what: str, expanded: int) -> None:
        if expanded > self._limits.max_bytes:
            raise invalid_argument(
                f"{what}: expected at most {self._limits.max_bytes} bytes in a request once it is "
                f"expanded, received {expanded} (--max_request_bytes)"
            )


UNLIMITED = Budget()  # for warm-up requests


def _expanded_bytes(alias: str, proto: TensorProto, elements: int) -> int:
    """Returns a tensor's bytes in the runtime, which repeats the last value that was sent."""
    if proto.dtype == DT_STRING:
        values = proto.string_val
        repeated = max(0, elements - len(values)) * len(values[-1]) if values else 0
        return elements * _STRING_BYTES + sum(map(len, values)) + repeated
    try:
        return elements * tf.as_dtype(proto.dtype).size
    except TypeError as error:
        raise malformed_tensor(alias) from error


class Receiving:
    """The calls whose message is on its way. Each holds a thread until it is whole.

    gRPC itself waits without an end for a client that never sends it, so that a few such calls
    would keep all others out. Here, they are ended in time: at once, if others need their threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[grpc.ServicerContext, float] = {}  # the oldest first
        self._seconds = _MESSAGE_SECONDS

    def message(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes | None:
        """Returns a call's message; None if its client sends none.

        Raises:
            grpc.RpcError: the client has left, or the call was ended here.
        """
        with self._lock:
            self._begun[context] = time.monotonic()
        try:
            return next(messages, None)
        finally:
            with self._lock:
                del self._begun[context]

    def end_late(self) -> None:
        """Ends the calls whose time is over, with CANCELLED. Has to be called again and again."""
        now = time.monotonic()
        with self._lock:
            begun = list(self._begun.items())
        for index, (context, since) in enumerate(begun):
            is_crowded = index < len(begun) - MOST_CALLS
            if now - since > (_CROWDED_SECONDS if is_crowded else self._seconds):
                context.cancel()

    def close(self) -> None:
        """Gives calls only the time of an overload, as the server stops."""
        self._seconds = _CROWDED_SECONDS


class Admission:
    """Bounds how many requests run and wait. They run in the order in which they came.

    Under overload, a queue without a bound grows until every reply arrives after its client has
    given up. With a bound, the server keeps its speed, and a client that it refuses knows at once.

    Args:
        max_bytes: the most bytes of all requests that are received and not yet answered.
    """

    def __init__(
        self, max_running: int, max_waiting: int, metrics: Metrics, max_bytes: float = math.inf
    ) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._running = 0
        self._max_bytes = max_bytes
        self._bytes = 0
        self._turns: deque[threading.Event] = deque()
        metrics.watch_queue(max_waiting, lambda: len(self._turns), lambda: self._running)

    @contextmanager
    def held(self) -> Iterator[Callable[[int], None]]:
        """Yields a function that counts bytes of one request, until the `with` statement ends.

        It raises a ServingError if there are too many together with those of other requests.
        """
        size = counted = 0

        def hold(more: int) -> None:
            nonlocal size, counted
            size += more
            with self._lock:
                added = max(0, size - _FREE_BYTES) - counted
                if self._bytes + added > self._max_bytes:
                    raise ServingError(
                        StatusCode.RESOURCE_EXHAUSTED,
                        f"The server is busy: requests that it has not answered yet have "
                        f"{self._bytes} bytes, of at most {self._max_bytes}",
                    )
                self._bytes += added
            counted += added

        try:
            yield hold
        finally:
            with self._lock:
                self._bytes -= counted

    @contextmanager
    def admitted(self, budget: Budget) -> Iterator[None]:
        """Runs the body of a `with` statement when it is its turn.

        Raises:
            ServingError: too many wait already, or the request's time was over while it waited.
        """
        self._enter(budget)
        try:
            yield
        finally:
            with self._lock:
                if self._turns:
                    self._turns.popleft().set()  # the next request runs instead of this one
                else:
                    self._running -= 1

    def _enter(self, budget: Budget) -> None:
        with self._lock:
            if self._running < self._max_running:
                self._running += 1
                return
            if len(self._turns) >= self._max_waiting:
                raise ServingError(
                    StatusCode.RESOURCE_EXHAUSTED,
                    f"The server is busy: {self._running} requests run and {len(self._turns)} "
                    "wait, as many as may (--max_queued_requests)",
                )
            turn = threading.Event()
            self._turns.append(turn)
        budget.wait(turn)
        with self._lock:
            if turn not in self._turns:  # its turn came
                return
            self._turns.remove(turn)
        raise budget.refusal("while waiting for a turn")

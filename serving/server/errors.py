"""ServingError: every error of the server, with TensorFlow Serving's code and message.

Loading a version and answering a request raise no other. Where TensorFlow Serving has no message of
its own, one says what was received and what was expected.
"""

from collections.abc import Iterable

from grpc import StatusCode
from tensorflow.core.framework.types_pb2 import DataType

from serving.runtime import StatusError

_MAX_MESSAGE_BYTES = 1024
_CODES = {code.value[0]: code for code in StatusCode}


class ServingError(Exception):
    """A model cannot be loaded, or a request cannot be answered.

    Attributes:
        code: the gRPC status code.
        message: what was wrong, in at most 1,024 bytes of UTF-8.
    """

    def __init__(self, code: StatusCode, message: str) -> None:
        # The text travels in an HTTP header: it must be valid UTF-8, and short in bytes.
        text = message.encode(errors="replace")[:_MAX_MESSAGE_BYTES].decode(errors="ignore")
        super().__init__(text)
        self.code = code
        self.message = text


def runtime_refusal(error: StatusError) -> ServingError:
    """Returns the error for what TensorFlow's runtime refused or failed at."""
    return ServingError(_CODES[error.code], error.message)


def invalid_argument(message: str) -> ServingError:
    """Returns the error for a request that is itself wrong, the most frequent one."""
    return ServingError(StatusCode.INVALID_ARGUMENT, message)


def malformed_tensor(alias: str) -> ServingError:
    """Returns the error for an input that is not a well-formed TensorProto."""
    return invalid_argument(f"tensor parsing error: {alias}")


def type_name(dtype: int) -> str:
    """Returns the C++ runtime's name of a DataType: DT_FLOAT is `float`, not `float32`."""
    return DataType.Name(dtype).removeprefix("DT_").lower()


def set_of(names: Iterable[str]) -> str:
    """Returns names as messages show them: `{a,b}`."""
    return "{" + ",".join(sorted(names)) + "}"

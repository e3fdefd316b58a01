"""gRPC's services: TensorFlow Serving's PredictionService and ModelService, and Health."""

import functools
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1.health import SERVICE_NAME, HealthServicer
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2
from tensorflow_serving.apis.get_model_metadata_pb2 import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
)
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest
from tensorflow_serving.apis.inference_pb2 import MultiInferenceRequest
from tensorflow_serving.apis.model_management_pb2 import ReloadConfigRequest, ReloadConfigResponse
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.status_pb2 import StatusProto

from serving.server import inference
from serving.server.errors import ServingError, invalid_argument
from serving.server.inference import Resources
from serving.server.limits import MOST_FIELDS, Budget, Receiving, has_too_many_fields
from serving.server.models.model_manager import ModelManager
from serving.server.models.servable import Servable

SERVICES = ("PredictionService", "ModelService")
_RELOAD = "HandleReloadConfigRequest"
_COMPRESSED = (b"\x1f", b"\x78")  # the first byte of gzip and of deflate, and of no request
_ZLIB_EITHER = 47  # zlib's number for both
_FIRST_FIELD = 0x0A  # the first byte of a message in field 1; its length follows
# A compressed message may grow by this factor, and by further bytes. Texts and ids grow 3 to 10
# times; 16 KB once became 16 MiB, and these 1.4 GB once they were parsed.
_MOST_EXPANSION = 20
_SPARE_BYTES = 2**20
_MAX_QUESTION_BYTES = 2**20  # of a call that runs no model
_DESCRIPTORS = {
    **prediction_service_pb2.DESCRIPTOR.services_by_name,
    **model_service_pb2.DESCRIPTOR.services_by_name,
}
# A call's arguments: the models, the request, and the request's budget.
_Call = Callable[[ModelManager, Any, Budget], Message]


def handlers(resources: Resources, receiving: Receiving) -> Iterator[grpc.GenericRpcHandler]:
    """Yields a handler for each of TensorFlow Serving's services, for a gRPC server."""
    for service in SERVICES:
        methods = {
            method.name: _method(
                functools.partial(
                    _answer, resources, method.name, GetMessageClass(method.input_type)
                ),
                receiving,
            )
            for method in _DESCRIPTORS[service].methods
        }
        yield grpc.method_handlers_generic_handler(_DESCRIPTORS[service].full_name, methods)


def health_handler(health: HealthServicer, receiving: Receiving) -> grpc.GenericRpcHandler:
    """Returns the handler for the health check; the library's own cannot read compressed ones."""

    def check(body: bytes, context: grpc.ServicerContext) -> HealthCheckResponse:
        request = _parsed(HealthCheckRequest, body, _MAX_QUESTION_BYTES)
        return health.Check(request, context)

    def watch(messages: Any, context: grpc.ServicerContext, send: Callable[..., None]) -> None:
        def begin(body: bytes, context: grpc.ServicerContext) -> None:
            request = _parsed(HealthCheckRequest, body, _MAX_QUESTION_BYTES)
            health.Watch(request, context, send)

        _reply(begin, receiving, messages, context)

    # gRPC then calls it with `send`, and keeps no thread for a client that watches.
    setattr(watch, "experimental_non_blocking", True)  # noqa: B010
    watching = grpc.stream_stream_rpc_method_handler(watch, response_serializer=_serialized)
    methods = {"Check": _method(check, receiving), "Watch": watching}
    return grpc.method_handlers_generic_handler(SERVICE_NAME, methods)


def _method(
    answer: Callable[[bytes, grpc.ServicerContext], Message], receiving: Receiving
) -> grpc.RpcMethodHandler:
    """Returns the handler of a method that takes one message and returns one.

    For gRPC, it takes a stream of messages, so that `receiving` can end the wait for the first.
    They arrive as bytes: gRPC itself would report invalid ones as INTERNAL errors.
    """
    return grpc.stream_unary_rpc_method_handler(
        functools.partial(_reply, answer, receiving), response_serializer=_serialized
    )


def _serialized(reply: Message) -> bytes:
    return reply.SerializeToString()


def _reply(
    answer: Callable[[bytes, grpc.ServicerContext], Any],
    receiving: Receiving,
    messages: Iterator[bytes],
    context: grpc.ServicerContext,
) -> Any:
    body = receiving.message(messages, context)
    try:
        if body is None:
            raise ServingError(grpc.StatusCode.UNIMPLEMENTED, "Expected a message, received none")
        return answer(body, context)
    except ServingError as error:
        context.abort(error.code, error.message)


def _answer(
    resources: Resources,
    method: str,
    request_class: type[Message],
    body: bytes,
    context: grpc.ServicerContext,
) -> Message:
    budget = Budget(resources.limits, context.time_remaining())
    if not context.add_callback(budget.cancel):  # the call has ended
        budget.cancel()
    with resources.admission.held() as hold, resources.measured(method, "GRPC") as measured:
        if method not in _RUNS:
            request = _parsed(request_class, body, _MAX_QUESTION_BYTES)
            return _CALLS[method](resources.models, request, budget)
        measured.model_name = _model_name(body)
        hold(len(body))
        # A parsed message takes up to 89 times the memory, and parsing holds the interpreter.
        with resources.admission.admitted(budget):
            request = _parsed(request_class, body, resources.limits.max_bytes)
            measured.model_name = _model_spec(request).name
            return _RUNS[method](resources.models, request, budget)


def _parsed(request_class: type[Message], body: bytes, max_bytes: float) -> Any:
    """Returns the message that a client sent, compressed or not.

    gRPC leaves decompression to this function: it would do so before a request has its turn.
    """
    try:
        if body.startswith(_COMPRESSED):
            max_bytes = min(max_bytes, _MOST_EXPANSION * len(body) + _SPARE_BYTES)
            decompressor = zlib.decompressobj(_ZLIB_EITHER)
            body = decompressor.decompress(body, int(max_bytes) + 1)
            if len(body) <= max_bytes and not decompressor.eof:
                raise zlib.error("cut off")
        if len(body) > max_bytes:
            raise ServingError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"Expected a {request_class.DESCRIPTOR.name} of at most {int(max_bytes)} bytes"
                "; received more, or a compressed one that grows to more",
            )
        if has_too_many_fields(body, request_class.DESCRIPTOR):
            raise ServingError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"Expected a {request_class.DESCRIPTOR.name} of at most {MOST_FIELDS} fields, with "
                "those of the messages in it; received more",
            )
        return request_class.FromString(body)
    except (DecodeError, zlib.error) as error:
        raise invalid_argument(f"Expected a {request_class.DESCRIPTOR.name}") from error


def _model_name(body: bytes) -> str:
    """Returns the model's name of a request that is not parsed yet, if it can be seen.

    All calls but MultiInference have their model_spec where GetModelStatus has its only field. It
    comes first and is short; to skip what follows could take as long as to parse it.
    """
    if len(body) < 2 or body[0] != _FIRST_FIELD or body[1] > 127:
        return ""
    try:
        return GetModelStatusRequest.FromString(body[: 2 + body[1]]).model_spec.name
    except DecodeError:
        return ""


def _model_spec(request: Any) -> ModelSpec:
    if isinstance(request, MultiInferenceRequest):
        return request.tasks[0].model_spec if request.tasks else ModelSpec()
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    return request.model_spec


def _on_servable(call: Callable[[Servable, Any, Budget], Message]) -> _Call:
    return lambda models, request, budget: call(models.find(_model_spec(request)), request, budget)


def _get_model_metadata(
    models: ModelManager, request: GetModelMetadataRequest, budget: Budget
) -> GetModelMetadataResponse:
    spec = _model_spec(request)
    if not request.metadata_field:
        raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
    for field in request.metadata_field:
        if field != inference.SIGNATURE_DEF:
            raise invalid_argument(f"Metadata field {field} is not supported")
    return inference.get_model_metadata(models.find(spec))


def _reload(
    models: ModelManager, request: ReloadConfigRequest, budget: Budget
) -> ReloadConfigResponse:
    models.configure(request.config)
    return ReloadConfigResponse(status=StatusProto())


_RUNS: Mapping[str, _Call] = {
    "Predict": _on_servable(inference.predict),
    "Classify": _on_servable(inference.classify),
    "Regress": _on_servable(inference.regress),
    "MultiInference": _on_servable(inference.multi_inference),
}
# Calls that run no model are answered even if the server is busy, as probes use them.
_CALLS: Mapping[str, _Call] = {
    **_RUNS,
    "GetModelMetadata": _get_model_metadata,
    "GetModelStatus": lambda models, request, budget: models.status(_model_spec(request)),
    _RELOAD: _reload,
}

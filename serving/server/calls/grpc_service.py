"""TensorFlow Serving's gRPC services: PredictionService and ModelService."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2
from tensorflow_serving.apis.get_model_metadata_pb2 import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
)
from tensorflow_serving.apis.inference_pb2 import MultiInferenceRequest
from tensorflow_serving.apis.model_management_pb2 import ReloadConfigRequest, ReloadConfigResponse
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.status_pb2 import StatusProto

from serving.server.calls import example_inference, inference
from serving.server.calls.server_resources import Resources
from serving.server.errors import ServingError, invalid_argument
from serving.server.limits.budget import Budget
from serving.server.models.model_manager import ModelManager
from serving.server.models.servable import Servable

SERVICES = ("PredictionService", "ModelService")
_RELOAD = "HandleReloadConfigRequest"
_DESCRIPTORS = {
    **prediction_service_pb2.DESCRIPTOR.services_by_name,
    **model_service_pb2.DESCRIPTOR.services_by_name,
}
# A call's arguments: the models, the request, and the request's budget.
_Call = Callable[[ModelManager, Any, Budget], Message]


def handlers(resources: Resources) -> Iterator[grpc.GenericRpcHandler]:
    """Yields a handler for each service, for a gRPC server."""
    answer = functools.partial(_answer, resources)
    for service in SERVICES:
        methods = {
            method.name: grpc.unary_unary_rpc_method_handler(
                functools.partial(answer, method.name, GetMessageClass(method.input_type)),
                # Requests arrive as bytes: gRPC itself would report invalid ones as INTERNAL
                # errors.
                response_serializer=lambda response: response.SerializeToString(),
            )
            for method in _DESCRIPTORS[service].methods
        }
        yield grpc.method_handlers_generic_handler(_DESCRIPTORS[service].full_name, methods)


def _answer(
    resources: Resources,
    method: str,
    request_class: type[Message],
    body: bytes,
    context: grpc.ServicerContext,
) -> Message:
    """Returns the reply to a request, or ends it with the error's status."""
    budget = Budget(resources.limits, context.time_remaining())
    try:
        try:
            request = request_class.FromString(body)
        except DecodeError as error:
            raise invalid_argument(f"Expected a {request_class.DESCRIPTOR.name}") from error
        name = "" if method == _RELOAD else _model_spec(request).name
        with resources.measured(name, method.lower(), "GRPC"):
            with resources.admission.admitted(budget) if method in _RUNS else nullcontext():
                return _CALLS[method](resources.models, request, budget)
    except ServingError as error:
        context.abort(error.code, error.message)
        raise  # never reached: `abort` raises, but type checkers do not know it


def _model_spec(request: Any) -> ModelSpec:
    """Returns the request's model_spec.

    Raises:
        ServingError: the request does not name one.
    """
    if isinstance(request, MultiInferenceRequest):
        return request.tasks[0].model_spec if request.tasks else ModelSpec()
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    return request.model_spec


def _on_servable(call: Callable[[Servable, Any, Budget], Message]) -> _Call:
    """Returns a call that first finds the request's servable."""
    return lambda models, request, budget: call(models.find(_model_spec(request)), request, budget)


def _get_model_metadata(
    models: ModelManager, request: GetModelMetadataRequest, budget: Budget
) -> GetModelMetadataResponse:
    """Describes a servable, if the request asks for its signatures and nothing else."""
    if not request.metadata_field:
        raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
    for field in request.metadata_field:
        if field != inference.SIGNATURE_DEF:
            raise invalid_argument(f"Metadata field {field} is not supported")
    return inference.get_model_metadata(models.find(request.model_spec))


def _reload(
    models: ModelManager, request: ReloadConfigRequest, budget: Budget
) -> ReloadConfigResponse:
    """Serves the models that the request lists, and only those."""
    models.configure(request.config)
    return ReloadConfigResponse(status=StatusProto())


_RUNS: Mapping[str, _Call] = {
    "Predict": _on_servable(inference.predict),
    "Classify": _on_servable(example_inference.classify),
    "Regress": _on_servable(example_inference.regress),
    "MultiInference": _on_servable(example_inference.multi_inference),
}
# Calls that run no model are answered even if the server is busy, as probes use them.
_CALLS: Mapping[str, _Call] = {
    **_RUNS,
    "GetModelMetadata": _get_model_metadata,
    "GetModelStatus": lambda models, request, budget: models.status(request.model_spec),
    _RELOAD: _reload,
}

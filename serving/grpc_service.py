"""TensorFlow Serving's calls on a list of servables, and the gRPC services that offer them.

Each call is a plain function of a request that returns the reply or raises `ServingError`; a
service only turns the error into a gRPC status. The calls that are not written here (Regress,
MultiInference, HandleReloadConfigRequest) are answered UNIMPLEMENTED by the generated base classes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf.message import Message
from grpc import StatusCode
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
from tensorflow_serving.apis.classification_pb2 import (
    ClassificationRequest,
    ClassificationResponse,
)
from tensorflow_serving.apis.get_model_metadata_pb2 import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    SignatureDefMap,
)
from tensorflow_serving.apis.get_model_status_pb2 import (
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelVersionStatus,
)
from tensorflow_serving.apis.input_pb2 import Input
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse
from tensorflow_serving.apis.status_pb2 import StatusProto

from serving.servable import (
    DEFAULT_SIGNATURE,
    Servable,
    ServingError,
    find,
    invalid_argument,
    refuse_label,
    set_of,
)

SIGNATURE_DEF = "signature_def"
_VALUE_FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "int8": "int_val",
    "uint8": "int_val",
    "int16": "int_val",
    "uint16": "int_val",
    "int32": "int_val",
    "int64": "int64_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
    "object": "string_val",
}
_Response = TypeVar("_Response")


def predict(servables: Sequence[Servable], request: PredictRequest) -> PredictResponse:
    """Runs a signature on named tensors."""
    servable = find(servables, _model_spec(request))
    signature_name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    outputs = servable.predict(signature_name, request.inputs, request.output_filter)
    response = PredictResponse(model_spec=_reply_spec(servable, signature_name))
    for alias, array in outputs.items():
        response.outputs[alias].CopyFrom(_tensor_proto(alias, array))
    return response


def classify(
    servables: Sequence[Servable], request: ClassificationRequest
) -> ClassificationResponse:
    """Runs a classification signature on tf.Examples: `inputs` in, `classes`, `scores` out."""
    servable = find(servables, _model_spec(request))
    signature_name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    signature = servable.signature(signature_name)
    if signature is None:
        raise invalid_argument(f"No signature was found with the name: {signature_name}")
    _check_classifies(signature_name, signature)
    examples = _serialized_examples(request.input)
    if not examples:
        raise invalid_argument("Input is empty.")
    outputs = servable.run(signature_name, {"inputs": tf.constant(examples)})
    _check_classification(outputs, len(examples))

    response = ClassificationResponse(model_spec=_reply_spec(servable, signature_name))
    batch, num_classes = next(iter(outputs.values())).shape
    for row in range(batch):
        classifications = response.result.classifications.add()
        for column in range(num_classes):
            result = classifications.classes.add()
            if "classes" in outputs:
                result.label = outputs["classes"][row, column].decode(errors="replace")
            if "scores" in outputs:
                result.score = outputs["scores"][row, column]
    return response


def get_model_metadata(
    servables: Sequence[Servable], request: GetModelMetadataRequest
) -> GetModelMetadataResponse:
    """Describes a model's signatures: its only metadata field."""
    spec = _model_spec(request)
    if not request.metadata_field:
        raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
    for field in request.metadata_field:
        if field != SIGNATURE_DEF:
            raise invalid_argument(f"Metadata field {field} is not supported")
    servable = find(servables, spec)
    response = GetModelMetadataResponse(model_spec=_reply_spec(servable))
    signatures = SignatureDefMap(signature_def=servable.signature_defs)
    response.metadata[SIGNATURE_DEF].Pack(signatures)
    return response


def get_model_status(
    servables: Sequence[Servable], request: GetModelStatusRequest
) -> GetModelStatusResponse:
    """Lists the loaded versions of a model, or the one that is asked for."""
    spec = _model_spec(request)
    refuse_label(spec)
    found = [servable for servable in servables if servable.name == spec.name]
    missing = f"Could not find any versions of model {spec.name}"
    if spec.HasField("version"):
        found = [servable for servable in found if servable.version == spec.version.value]
        missing = f"Could not find version {spec.version.value} of model {spec.name}"
    if not found:
        raise ServingError(StatusCode.NOT_FOUND, missing)
    statuses = [
        ModelVersionStatus(
            version=servable.version, state=ModelVersionStatus.AVAILABLE, status=StatusProto()
        )
        for servable in found
    ]
    return GetModelStatusResponse(model_version_status=statuses)


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """tensorflow.serving.PredictionService."""

    def __init__(self, servables: Sequence[Servable]) -> None:
        self._servables = servables

    def Predict(self, request: PredictRequest, context: grpc.ServicerContext) -> PredictResponse:
        return _answer(predict, self._servables, request, context)

    def Classify(
        self, request: ClassificationRequest, context: grpc.ServicerContext
    ) -> ClassificationResponse:
        return _answer(classify, self._servables, request, context)

    def GetModelMetadata(
        self, request: GetModelMetadataRequest, context: grpc.ServicerContext
    ) -> GetModelMetadataResponse:
        return _answer(get_model_metadata, self._servables, request, context)


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """tensorflow.serving.ModelService."""

    def __init__(self, servables: Sequence[Servable]) -> None:
        self._servables = servables

    def GetModelStatus(
        self, request: GetModelStatusRequest, context: grpc.ServicerContext
    ) -> GetModelStatusResponse:
        return _answer(get_model_status, self._servables, request, context)


def _answer(
    call: Callable[..., _Response],
    servables: Sequence[Servable],
    request: Message,
    context: grpc.ServicerContext,
) -> _Response:
    """Returns the reply to a gRPC request, or ends it with the error's status."""
    try:
        return call(servables, request)
    except ServingError as error:
        context.abort(error.code, error.message)
        raise  # never reached, for abort raises; type checkers do not know


def _model_spec(request: Message) -> ModelSpec:
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    return request.model_spec


def _reply_spec(servable: Servable, signature_name: str | None = None) -> ModelSpec:
    """Returns the model_spec of a reply: what was asked for, resolved."""
    spec = ModelSpec(name=servable.name, signature_name=signature_name)
    spec.version.value = servable.version
    return spec


def _tensor_proto(alias: str, array: np.ndarray) -> TensorProto:
    """Returns an array as a tensor with its values in a typed field, where clients read them.

    tf.make_tensor_proto would put them into tensor_content.
    """
    field = _VALUE_FIELDS.get(array.dtype.name)
    if field is None:
        raise ServingError(
            StatusCode.UNIMPLEMENTED,
            f"Output {alias} has type {array.dtype}; expected one of {set_of(_VALUE_FIELDS)}",
        )
    proto = TensorProto(dtype=tf.as_dtype(array.dtype).as_datatype_enum)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, field).extend(array.ravel().tolist())
    return proto


def _serialized_examples(examples: Input) -> list[bytes]:
    """Returns the serialized tf.Examples of an Input, each merged with the context they share."""
    if examples.WhichOneof("kind") == "example_list_with_context":
        shared = examples.example_list_with_context
        # Parsing one message after another merges them; so a context is a prefix.
        context = shared.context.SerializeToString()
        return [context + example.SerializeToString() for example in shared.examples]
    return [example.SerializeToString() for example in examples.example_list.examples]


def _check_classifies(name: str, signature: SignatureDef) -> None:
    """Refuses a signature without the inputs and outputs of a classification."""
    outputs = set(signature.outputs)
    if set(signature.inputs) != {"inputs"} or not outputs or outputs - {"classes", "scores"}:
        raise invalid_argument(
            f"Signature {name} does not classify: expected inputs {{inputs}} and outputs "
            f"{{classes,scores}}, found inputs {set_of(signature.inputs)} and outputs "
            f"{set_of(outputs)}"
        )


def _check_classification(outputs: Mapping[str, np.ndarray], batch: int) -> None:
    """Refuses outputs that a classification's reply has no place for."""
    expected = {"classes": np.dtype(object), "scores": np.dtype(np.float32)}
    shapes = {array.shape for array in outputs.values()}
    shape = shapes.pop()
    dtypes_fit = all(array.dtype == expected[alias] for alias, array in outputs.items())
    if shapes or len(shape) != 2 or shape[0] != batch or not dtypes_fit:
        found = {alias: f"{array.dtype} {list(array.shape)}" for alias, array in outputs.items()}
        raise invalid_argument(
            f"Expected classes (string) and scores (float), both [{batch}, num_classes], "
            f"from the signature; found {found}"
        )

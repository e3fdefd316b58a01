"""The calls on servables: Predict, GetModelMetadata, Classify, Regress and MultiInference.

Clients make them, and a version's warm-up requests before it is available.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError, Message
from grpc import StatusCode
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis.classification_pb2 import (
    ClassificationRequest,
    ClassificationResponse,
)
from tensorflow_serving.apis.get_model_metadata_pb2 import (
    GetModelMetadataResponse,
    SignatureDefMap,
)
from tensorflow_serving.apis.inference_pb2 import MultiInferenceRequest, MultiInferenceResponse
from tensorflow_serving.apis.input_pb2 import Input
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
from tensorflow_serving.apis.regression_pb2 import (
    RegressionRequest,
    RegressionResponse,
)

from serving.export_names import DEFAULT_SIGNATURE, WARMUP_FILE
from serving.server.errors import ServingError, invalid_argument, set_of
from serving.server.limits import UNLIMITED, Admission, Budget, RequestLimits
from serving.server.models.model_manager import ModelManager
from serving.server.models.servable import Servable
from serving.server.prometheus_metrics import MeasuredRequest, Metrics

SIGNATURE_DEF = "signature_def"
_PIECE = 2**16  # elements that are added to a reply in a few milliseconds
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
_MAX_WARMUP_REQUESTS = 1000


@dataclass(frozen=True)
class Resources:
    """The models, limits and metrics of one server."""

    models: ModelManager
    metrics: Metrics
    admission: Admission
    limits: RequestLimits

    def measured(self, api: str, entrypoint: str) -> AbstractContextManager[MeasuredRequest]:
        """Counts and times the body of a `with` statement as one request; see `Metrics.request`."""
        return self.metrics.request(api, entrypoint, self.models.__contains__)


def predict(
    servable: Servable, request: PredictRequest, budget: Budget = UNLIMITED
) -> PredictResponse:
    """Runs a signature on named tensors."""
    signature_name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    outputs = servable.predict(signature_name, request.inputs, request.output_filter, budget)
    response = PredictResponse(model_spec=reply_spec(servable, signature_name))
    for alias, array in outputs.items():
        response.outputs[alias].CopyFrom(_tensor_proto(array, budget))
    return response


def get_model_metadata(servable: Servable) -> GetModelMetadataResponse:
    """Describes a model's signatures, its only metadata."""
    response = GetModelMetadataResponse(model_spec=reply_spec(servable))
    signatures = SignatureDefMap(signature_def=servable.signature_defs)
    response.metadata[SIGNATURE_DEF].Pack(signatures)
    return response


def reply_spec(servable: Servable, signature_name: str | None = None) -> ModelSpec:
    """Returns the model_spec of a reply: the version and the signature that answered."""
    spec = ModelSpec(name=servable.name, signature_name=signature_name)
    spec.version.value = servable.version
    return spec


def _tensor_proto(array: np.ndarray, budget: Budget) -> TensorProto:
    """Returns an array as a TensorProto with its values in a typed field, as clients expect it.

    `tf.make_tensor_proto` would put them into tensor_content. Values are added in pieces, so that
    other threads need not wait, and time is checked.
    """
    proto = TensorProto(dtype=tf.as_dtype(array.dtype).as_datatype_enum)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    field, values = getattr(proto, _VALUE_FIELDS[array.dtype.name]), array.ravel()
    for start in range(0, values.size, _PIECE):
        budget.check_time()
        field.extend(values[start : start + _PIECE].tolist())
    return proto


def classify(
    servable: Servable, request: ClassificationRequest, budget: Budget = UNLIMITED
) -> ClassificationResponse:
    """Runs a signature on tf.Examples: `inputs` in, `classes` and `scores` out."""
    name = _example_signature(servable, request.model_spec)
    expected = {"classes": np.dtype(object), "scores": np.dtype(np.float32)}
    outputs, batch = _run_examples(servable, name, request.input, budget, "Classify", expected)
    shapes = {array.shape for array in outputs.values()}
    shape = shapes.pop()
    dtypes_fit = all(array.dtype == expected[alias] for alias, array in outputs.items())
    if shapes or len(shape) != 2 or shape[0] != batch or not dtypes_fit:
        raise invalid_argument(
            f"Expected classes (string) and scores (float), both [{batch}, num_classes], "
            f"from the signature; found {_described(outputs)}"
        )
    response = ClassificationResponse(model_spec=reply_spec(servable, name))
    for row in range(batch):
        classifications = response.result.classifications.add()
        for column in range(shape[1]):
            each = classifications.classes.add()
            if "classes" in outputs:
                each.label = outputs["classes"][row, column].decode(errors="replace")
            if "scores" in outputs:
                each.score = outputs["scores"][row, column]
    return response


def regress(
    servable: Servable, request: RegressionRequest, budget: Budget = UNLIMITED
) -> RegressionResponse:
    """Runs a signature on tf.Examples: `inputs` in, `outputs` out."""
    name = _example_signature(servable, request.model_spec)
    outputs, batch = _run_examples(servable, name, request.input, budget, "Regress", ["outputs"])
    values = outputs["outputs"]
    if values.shape not in ((batch,), (batch, 1)) or values.dtype != np.float32:
        raise invalid_argument(
            f"Expected outputs (float), [{batch}] or [{batch}, 1], from the signature; "
            f"found {_described(outputs)}"
        )
    response = RegressionResponse(model_spec=reply_spec(servable, name))
    for value in values.ravel().tolist():
        response.result.regressions.add(value=value)
    return response


def multi_inference(
    servable: Servable, request: MultiInferenceRequest, budget: Budget = UNLIMITED
) -> MultiInferenceResponse:
    """Classifies and regresses the same tf.Examples with several signatures of one model."""
    response = MultiInferenceResponse()
    names = set()
    for each in request.tasks:
        if each.model_spec.name != servable.name:
            raise invalid_argument(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        name = each.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in names:
            raise invalid_argument(f"Duplicate evaluation of signature: {name}")
        names.add(name)
        if name not in servable.signature_defs:
            raise invalid_argument(f"Requested signature not found in model graph: {name}")
        given = {"model_spec": each.model_spec, "input": request.input}
        result = response.results.add(model_spec=reply_spec(servable, name))
        if each.method_name == "tensorflow/serving/classify":
            classified = classify(servable, ClassificationRequest(**given), budget)
            result.classification_result.CopyFrom(classified.result)
        elif each.method_name == "tensorflow/serving/regress":
            regressed = regress(servable, RegressionRequest(**given), budget)
            result.regression_result.CopyFrom(regressed.result)
        else:
            raise ServingError(
                StatusCode.UNIMPLEMENTED, f"Unsupported signature method_name: {each.method_name}"
            )
    return response


def serialized_examples(examples: Input) -> Sequence[bytes]:
    """Returns the serialized tf.Examples of an Input, each merged with the context they share."""
    if examples.WhichOneof("kind") == "example_list_with_context":
        shared = examples.example_list_with_context
        # Parsing one message after another merges them; so a context is a prefix.
        context = shared.context.SerializeToString()
        return [context + example.SerializeToString() for example in shared.examples]
    return [example.SerializeToString() for example in examples.example_list.examples]


def _example_signature(servable: Servable, spec: ModelSpec) -> str:
    name = spec.signature_name or DEFAULT_SIGNATURE
    if name not in servable.signature_defs:
        raise invalid_argument(f"No signature was found with the name: {name}")
    return name


def _run_examples(
    servable: Servable,
    name: str,
    examples: Input,
    budget: Budget,
    api: str,
    possible: Collection[str],
) -> tuple[dict[str, np.ndarray], int]:
    """Returns a signature's outputs for tf.Examples, and how many examples there were.

    It refuses a signature with other outputs than `possible` ones.
    """
    signature = servable.signature_defs[name]
    inputs, outputs = set(signature.inputs), set(signature.outputs)
    if inputs != {"inputs"} or not outputs or outputs - set(possible):
        raise invalid_argument(
            f"Signature {name} does not {api.lower()}: expected inputs {{inputs}} and outputs "
            f"{set_of(possible)}, found inputs {set_of(inputs)} and outputs {set_of(outputs)}"
        )
    budget.check_examples(examples)
    serialized = serialized_examples(examples)
    if not serialized:
        raise invalid_argument("Input is empty.")
    tensor = tf.make_tensor_proto(serialized, tf.string)
    found = servable.run(signature, {"inputs": tensor}, sorted(outputs), api, budget)
    servable.count_examples(len(serialized))
    return found, len(serialized)


def _described(outputs: dict[str, np.ndarray]) -> dict[str, str]:
    return {alias: f"{array.dtype} {list(array.shape)}" for alias, array in outputs.items()}


_CALLS: Mapping[type, Callable[[Servable, Any], Message]] = {
    PredictRequest: predict,
    ClassificationRequest: classify,
    RegressionRequest: regress,
    MultiInferenceRequest: multi_inference,
}


def read_warmup(path: Path) -> list[Message]:
    """Returns the warm-up requests in a SavedModel's folder, or refuses its file."""
    file = path / WARMUP_FILE
    if not file.exists():
        return []
    try:
        records = list(tf.data.TFRecordDataset(str(file)).as_numpy_iterator())
        logs = [PredictionLog.FromString(record) for record in records]
    except (tf.errors.OpError, DecodeError) as error:
        raise ServingError(StatusCode.DATA_LOSS, f"{WARMUP_FILE}: {error}") from error
    if len(logs) > _MAX_WARMUP_REQUESTS:
        raise invalid_argument(f"{WARMUP_FILE}: more than {_MAX_WARMUP_REQUESTS} requests")
    requests = [getattr(log, log.WhichOneof("log_type") or "", log).request for log in logs]
    for request in requests:
        if type(request) not in _CALLS:
            raise invalid_argument(f"{WARMUP_FILE}: a request of type {type(request).__name__}")
    return requests


def warm_up(servable: Servable, rounds: int = 1) -> None:
    """Answers a version's warm-up requests, so that clients' first requests are not slow.

    Args:
        rounds: how often each is answered; 0 for no warm-up.
    """
    requests = read_warmup(servable.path) if rounds else []
    for request in requests:
        for _ in range(rounds):
            _CALLS[type(request)](servable, request)

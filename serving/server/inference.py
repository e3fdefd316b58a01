"""TensorFlow Serving's calls on one servable: a request in, its reply or a `ServingError` out."""

from collections.abc import Callable, Collection, Mapping, Sequence
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
    ClassificationResult,
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
    RegressionResult,
)

from serving.layout import DEFAULT_SIGNATURE, WARMUP_FILE
from serving.server.metrics import runtime_measured
from serving.server.servable import (
    Servable,
    ServingError,
    invalid_argument,
    set_of,
)

SIGNATURE_DEF = "signature_def"
_MAX_WARMUP_REQUESTS = 1000
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


def predict(
    servable: Servable, request: PredictRequest, timeout: float | None = None
) -> PredictResponse:
    """Runs a signature on named tensors, within `timeout` seconds if that is given."""
    signature_name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    with runtime_measured(servable.name, "Predict"):
        outputs = servable.predict(signature_name, request.inputs, request.output_filter, timeout)
    response = PredictResponse(model_spec=_reply_spec(servable, signature_name))
    for alias, array in outputs.items():
        response.outputs[alias].CopyFrom(_tensor_proto(array))
    return response


def classify(
    servable: Servable, request: ClassificationRequest, timeout: float | None = None
) -> ClassificationResponse:
    """Runs a signature on tf.Examples: `inputs` in, `classes` and `scores` out."""
    name = _example_signature(servable, request.model_spec)
    result = _classify(servable, name, request.input, timeout)
    return ClassificationResponse(result=result, model_spec=_reply_spec(servable, name))


def regress(
    servable: Servable, request: RegressionRequest, timeout: float | None = None
) -> RegressionResponse:
    """Runs a signature on tf.Examples: `inputs` in, `outputs` out."""
    name = _example_signature(servable, request.model_spec)
    result = _regress(servable, name, request.input, timeout)
    return RegressionResponse(result=result, model_spec=_reply_spec(servable, name))


def multi_inference(
    servable: Servable, request: MultiInferenceRequest, timeout: float | None = None
) -> MultiInferenceResponse:
    """Classifies and regresses the same tf.Examples with several signatures of one model."""
    response = MultiInferenceResponse()
    names = set()
    for task in request.tasks:
        if task.model_spec.name != servable.name:
            raise invalid_argument(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        name = task.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in names:
            raise invalid_argument(f"Duplicate evaluation of signature: {name}")
        names.add(name)
        if name not in servable.signature_defs:
            raise invalid_argument(f"Requested signature not found in model graph: {name}")
        arguments = servable, name, request.input, timeout
        result = response.results.add(model_spec=_reply_spec(servable, name))
        if task.method_name == "tensorflow/serving/classify":
            result.classification_result.CopyFrom(_classify(*arguments))
        elif task.method_name == "tensorflow/serving/regress":
            result.regression_result.CopyFrom(_regress(*arguments))
        else:
            raise ServingError(
                StatusCode.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}"
            )
    return response


def get_model_metadata(servable: Servable) -> GetModelMetadataResponse:
    """Describes a model's signatures, which is all the metadata that there is."""
    response = GetModelMetadataResponse(model_spec=_reply_spec(servable))
    signatures = SignatureDefMap(signature_def=servable.signature_defs)
    response.metadata[SIGNATURE_DEF].Pack(signatures)
    return response


def serialized_examples(examples: Input) -> Sequence[bytes]:
    """Returns the serialized tf.Examples of an Input, each merged with the context they share."""
    if examples.WhichOneof("kind") == "example_list_with_context":
        shared = examples.example_list_with_context
        # Parsing one message after another merges them; so a context is a prefix.
        context = shared.context.SerializeToString()
        return [context + example.SerializeToString() for example in shared.examples]
    return [example.SerializeToString() for example in examples.example_list.examples]


def read_warmup(path: Path) -> list[Message]:
    """Returns the requests that come with a SavedModel, to be answered before any other.

    Args:
        path: its folder.

    Raises:
        ServingError: they cannot be read, or are not what such a file may hold.
    """
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
        if type(request) not in _WARMUP_CALLS:
            raise invalid_argument(f"{WARMUP_FILE}: a request of type {type(request).__name__}")
    return requests


def warm_up(servable: Servable, path: Path) -> None:
    """Answers the requests that come with a SavedModel, so that clients do not pay for them.

    Raises:
        ServingError: a request cannot be read or answered.
    """
    for request in read_warmup(path):
        _WARMUP_CALLS[type(request)](servable, request)


def _reply_spec(servable: Servable, signature_name: str | None = None) -> ModelSpec:
    """Returns the model_spec of a reply: what was asked for, resolved."""
    spec = ModelSpec(name=servable.name, signature_name=signature_name)
    spec.version.value = servable.version
    return spec


def _tensor_proto(array: np.ndarray) -> TensorProto:
    """Returns an array as a tensor with its values in a typed field, where clients read them.

    tf.make_tensor_proto would put them into tensor_content.
    """
    proto = TensorProto(dtype=tf.as_dtype(array.dtype).as_datatype_enum)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, _VALUE_FIELDS[array.dtype.name]).extend(array.ravel().tolist())
    return proto


def _example_signature(servable: Servable, spec: ModelSpec) -> str:
    name = spec.signature_name or DEFAULT_SIGNATURE
    if name not in servable.signature_defs:
        raise invalid_argument(f"No signature was found with the name: {name}")
    return name


def _classify(
    servable: Servable, name: str, examples: Input, timeout: float | None
) -> ClassificationResult:
    expected = {"classes": np.dtype(object), "scores": np.dtype(np.float32)}
    outputs, batch = _run_examples(servable, name, examples, timeout, "Classify", expected)
    shapes = {array.shape for array in outputs.values()}
    shape = shapes.pop()
    dtypes_fit = all(array.dtype == expected[alias] for alias, array in outputs.items())
    if shapes or len(shape) != 2 or shape[0] != batch or not dtypes_fit:
        raise invalid_argument(
            f"Expected classes (string) and scores (float), both [{batch}, num_classes], "
            f"from the signature; found {_described(outputs)}"
        )
    result = ClassificationResult()
    for row in range(batch):
        classifications = result.classifications.add()
        for column in range(shape[1]):
            each = classifications.classes.add()
            if "classes" in outputs:
                each.label = outputs["classes"][row, column].decode(errors="replace")
            if "scores" in outputs:
                each.score = outputs["scores"][row, column]
    return result


def _regress(
    servable: Servable, name: str, examples: Input, timeout: float | None
) -> RegressionResult:
    outputs, batch = _run_examples(servable, name, examples, timeout, "Regress", ["outputs"])
    values = outputs["outputs"]
    if values.shape not in ((batch,), (batch, 1)) or values.dtype != np.float32:
        raise invalid_argument(
            f"Expected outputs (float), [{batch}] or [{batch}, 1], from the signature; "
            f"found {_described(outputs)}"
        )
    result = RegressionResult()
    for value in values.ravel().tolist():
        result.regressions.add(value=value)
    return result


def _run_examples(
    servable: Servable,
    name: str,
    examples: Input,
    timeout: float | None,
    api: str,
    possible: Collection[str],
) -> tuple[dict[str, np.ndarray], int]:
    """Returns a signature's outputs for tf.Examples, and how many these were.

    Raises:
        ServingError: the signature's outputs are not among the `possible` ones; there is no
            example, or the graph refused them.
    """
    signature = servable.signature_defs[name]
    inputs, outputs = set(signature.inputs), set(signature.outputs)
    if inputs != {"inputs"} or not outputs or outputs - set(possible):
        raise invalid_argument(
            f"Signature {name} does not {api.lower()}: expected inputs {{inputs}} and outputs "
            f"{set_of(possible)}, found inputs {set_of(inputs)} and outputs {set_of(outputs)}"
        )
    serialized = serialized_examples(examples)
    if not serialized:
        raise invalid_argument("Input is empty.")
    tensor = tf.make_tensor_proto(serialized, tf.string)
    with runtime_measured(servable.name, api):
        return servable.run(signature, {"inputs": tensor}, sorted(outputs), timeout), len(
            serialized
        )


def _described(outputs: dict[str, np.ndarray]) -> dict[str, str]:
    return {alias: f"{array.dtype} {list(array.shape)}" for alias, array in outputs.items()}


_WARMUP_CALLS: Mapping[type, Callable[[Servable, Any], Message]] = {
    PredictRequest: predict,
    ClassificationRequest: classify,
    RegressionRequest: regress,
    MultiInferenceRequest: multi_inference,
}

"""The calls on one servable: Predict and GetModelMetadata."""

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis.get_model_metadata_pb2 import (
    GetModelMetadataResponse,
    SignatureDefMap,
)
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse

from serving.export_names import DEFAULT_SIGNATURE
from serving.server.limits.budget import UNLIMITED, Budget
from serving.server.models.servable import Servable

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

"""A client of a server over gRPC."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc

# Requests hold tensors, and only TensorFlow has the messages for tensors.
import tensorflow as tf
from tensorflow.core.framework.types_pb2 import DataType
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest, SignatureDefMap
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from serving.client.clients import TIMEOUT_SECONDS, Input, Model, QueryError
from serving.plain_values import plain


@contextmanager
def open_client(target: str, model: Model, signature: str) -> Iterator["_GrpcClient"]:
    """Opens a channel to `host:port`, or another name that gRPC takes."""
    # Otherwise it takes replies of at most 4 MiB, and servers send longer ones.
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(target, options) as channel:
        yield _GrpcClient(PredictionServiceStub(channel), model, signature)


class _GrpcClient:
    """See `serving.client.clients.Client`."""

    def __init__(self, stub: PredictionServiceStub, model: Model, signature: str) -> None:
        self._stub = stub
        self._spec = ModelSpec(name=model.name, version_label=model.label)
        if model.version is not None:
            self._spec.version.value = model.version
        self._signature_name = signature
        self._inputs: Mapping[str, Any] = {}

    def inputs(self) -> Mapping[str, Input]:
        request = GetModelMetadataRequest(model_spec=self._spec, metadata_field=["signature_def"])
        signatures = SignatureDefMap()
        _answer(self._stub.GetModelMetadata, request).metadata["signature_def"].Unpack(signatures)
        name = self._signature_name
        if name not in signatures.signature_def:
            known = sorted(signatures.signature_def)
            raise QueryError(f"The model has no signature {name}, only {known}")
        found = signatures.signature_def[name]
        self._inputs = found.inputs
        return {
            name: Input(
                DataType.Name(info.dtype),
                None if info.tensor_shape.unknown_rank else len(info.tensor_shape.dim),
                name in found.defaults,
            )
            for name, info in found.inputs.items()
        }

    def predict(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        request = PredictRequest(model_spec=self._spec)
        request.model_spec.signature_name = self._signature_name
        for name, value in inputs.items():
            try:
                proto = tf.make_tensor_proto(value, self._inputs[name].dtype)
            except (TypeError, ValueError) as error:
                raise QueryError(f"Input {name}: {error}") from error
            request.inputs[name].CopyFrom(proto)
        outputs = _answer(self._stub.Predict, request).outputs
        return {name: plain(tf.make_ndarray(proto)) for name, proto in sorted(outputs.items())}


def _answer(call: Any, request: Any) -> Any:
    try:
        return call(request, timeout=TIMEOUT_SECONDS)
    except grpc.RpcError as error:
        raise QueryError(f"{error.code().name}: {error.details()}") from error

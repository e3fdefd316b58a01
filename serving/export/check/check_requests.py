"""Requests for every signature of an export: those of its warm-up, or made-up ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import Message
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef, SignatureDef, TensorInfo
from tensorflow_serving.apis.inference_pb2 import MultiInferenceRequest
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from serving.export_names import DEFAULT_SIGNATURE, EXAMPLES_INPUT
from serving.server.calls.example_inference import serialized_examples

_INIT_SIGNATURE = "__saved_model_init_op"  # run when the model is loaded


@dataclass(frozen=True)
class Request:
    """A request to a signature; its tensors have the names of the graph.

    Attributes:
        signature: the signature's name.
        origin: where the request comes from, for messages.
        feeds: serialized TensorProtos by tensor name.
        fetches: names of the tensors to return.
    """

    signature: str
    origin: str
    feeds: Mapping[str, bytes]
    fetches: Sequence[str]


def requests_for(graph: MetaGraphDef, warmup: Sequence[Message]) -> list[Request]:
    """Returns requests for every signature: of the warm-up, or where it has none, made up.

    Raises:
        ValueError: a request is for a signature that the graph does not have.
    """
    signatures = {
        name: signature
        for name, signature in sorted(graph.signature_def.items())
        if name != _INIT_SIGNATURE and any(info.name for info in signature.outputs.values())
    }
    asked: dict[str, list[Mapping[str, bytes]]] = {name: [] for name in signatures}
    for request in warmup:
        for name, inputs in _inputs(request):
            if name not in signatures:
                raise ValueError(
                    f"its warm-up asks for the signature {name}; expected one of {list(signatures)}"
                )
            asked[name].append(inputs)
    return [
        Request(
            name,
            "from the warm-up" if asked[name] else "made up",
            {signature.inputs[alias].name: proto for alias, proto in inputs.items()},
            [info.name for _, info in sorted(signature.outputs.items()) if info.name],
        )
        for name, signature in signatures.items()
        for inputs in asked[name] or [_made_up(signature, signatures)]
    ]


def _inputs(request: Any) -> Iterator[tuple[str, Mapping[str, bytes]]]:
    """Yields the signatures that a request is for, with serialized tensors by input name."""
    if isinstance(request, PredictRequest):
        inputs = {alias: proto.SerializeToString() for alias, proto in request.inputs.items()}
    else:
        inputs = {EXAMPLES_INPUT: _serialized(serialized_examples(request.input))}
    specs = [request] if not isinstance(request, MultiInferenceRequest) else request.tasks
    for spec in specs:
        yield spec.model_spec.signature_name or DEFAULT_SIGNATURE, inputs


def _made_up(
    signature: SignatureDef, signatures: Mapping[str, SignatureDef]
) -> Mapping[str, bytes]:
    """Returns one row of made-up values for each input, by name."""
    if set(signature.inputs) == {EXAMPLES_INPUT} and DEFAULT_SIGNATURE in signatures:
        texts = signatures[DEFAULT_SIGNATURE].inputs
        return {EXAMPLES_INPUT: _serialized([_example(texts).SerializeToString()])}
    return {alias: _serialized(_row(info)) for alias, info in signature.inputs.items()}


def _example(texts: Mapping[str, TensorInfo]) -> tf.train.Example:
    """Returns a tf.Example with one row of made-up values for each feature."""
    example = tf.train.Example()
    for name, info in texts.items():
        values = np.ravel(_row(info)).tolist()
        if info.dtype == tf.string:
            example.features.feature[name].bytes_list.value.extend(values)
    return example


def _row(info: TensorInfo) -> np.ndarray:
    """Returns an array that fits a signature's input, with 1 for each open dimension."""
    shape = [max(dim.size, 1) for dim in info.tensor_shape.dim]
    dtype = tf.as_dtype(info.dtype).as_numpy_dtype
    return np.full(shape, b"a text" if info.dtype == tf.string else 1, dtype)


def _serialized(values: Any) -> bytes:
    """Returns values as a serialized TensorProto."""
    return tf.make_tensor_proto(values).SerializeToString()

"""The warm-up requests of an export, by which a server is ready before clients ask it."""

import os
from collections.abc import Iterator, Mapping

import tensorflow as tf
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.input_pb2 import Input
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_log_pb2 import (
    ClassifyLog,
    PredictionLog,
    PredictLog,
    RegressLog,
)
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

from serving.export.signature import Signature, Signatures
from serving.export_names import CLASSIFY, EXAMPLES_INPUT, REGRESS


def write_warmup(path: str | os.PathLike[str], signatures: Signatures, model_name: str) -> None:
    """Writes the file of `warmup_requests`."""
    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
        for request in warmup_requests(signatures, model_name):
            writer.write(request.SerializeToString())


def warmup_requests(signatures: Signatures, model_name: str) -> list[PredictionLog]:
    """Returns requests for each signature, so that no client's is the first of its shape.

    They have one example each, and then two, for which the graph has other functions.
    """
    by_name = signatures.by_name.items()
    lengths = sorted({length for _, each in by_name for length in each.lengths})
    inputs = [
        (name, each.inputs_of_example(length))
        for length in lengths
        for name, each in by_name
        if length in each.lengths
    ]
    inputs += [(name, two) for name, each in by_name for two in _two_examples(each)]
    return [
        _request(ModelSpec(name=model_name, signature_name=name), tensors)
        for name, tensors in inputs
    ]


def _two_examples(signature: Signature) -> Iterator[dict[str, tf.Tensor]]:
    """Yields the inputs of the shortest two examples, unless their shapes differ as ids' do.

    Batching computes equal examples once, so these have different lengths.
    """
    examples = [signature.inputs_of_example(length) for length in signature.lengths[:2]]
    pairs = {name: [each[name] for each in examples] for name in signature.specs}
    if len(examples) == 2 and all(a.shape == b.shape for a, b in pairs.values()):
        yield {name: tf.concat(pair, axis=0) for name, pair in pairs.items()}


def _request(spec: ModelSpec, tensors: Mapping[str, tf.Tensor]) -> PredictionLog:
    # TF Serving has separate calls for the signatures of these names.
    if spec.signature_name == CLASSIFY:
        request = ClassificationRequest(model_spec=spec)
        _add_examples(request.input, tensors)
        return PredictionLog(classify_log=ClassifyLog(request=request))
    if spec.signature_name == REGRESS:
        request = RegressionRequest(model_spec=spec)
        _add_examples(request.input, tensors)
        return PredictionLog(regress_log=RegressLog(request=request))
    request = PredictRequest(model_spec=spec)
    for name, tensor in tensors.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(tensor))
    return PredictionLog(predict_log=PredictLog(request=request))


def _add_examples(to: Input, tensors: Mapping[str, tf.Tensor]) -> None:
    for serialized in tensors[EXAMPLES_INPUT].numpy():
        to.example_list.examples.add().ParseFromString(serialized)

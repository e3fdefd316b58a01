"""Requests that TF Serving replays before it makes a version available."""

from collections.abc import Mapping

import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    predict_pb2,
    prediction_log_pb2,
    regression_pb2,
)
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from serving.export.signatures import ConcreteFunction, Signatures, input_specs, words
from serving.export_names import CLASSIFY, EMBED, EXAMPLES_INPUT, EXPLAIN, REGRESS, TOKENIZE


def warmup_requests(
    signatures: Signatures, functions: Mapping[str, ConcreteFunction], model_name: str
) -> list[PredictionLog]:
    """Returns a request for each signature and bucket, so that no client pays for a new shape.

    There is one for `explain`, of the smallest bucket.

    Args:
        signatures: of the export.
        functions: what its `functions` returns.
        model_name: the name in the requests' model_spec.
    """
    requests = []
    for number, length in enumerate(signatures.bucket_lengths()):
        texts = signatures.sample(length)
        for name, function in functions.items():
            # An explanation takes many runs, of any shape. One optimizes its graph.
            if name == EXPLAIN and number > 0:
                continue
            names = list(input_specs(function))
            spec = ModelSpec(name=model_name, signature_name=name)
            if names == [EXAMPLES_INPUT]:
                requests.append(_of_example(spec, texts))
            else:
                tensors = {"text": tf.constant([words(length)])} if name == EMBED else texts
                if not tensors.keys() >= set(names):
                    tensors = _tokens(functions, texts)
                requests.append(_predict(spec, {key: tensors[key] for key in names}))
    return requests


def _tokens(
    functions: Mapping[str, ConcreteFunction], texts: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """The model's inputs, by name."""
    tokenize = functions[TOKENIZE]
    return tokenize(**{name: texts[name] for name in input_specs(tokenize)})


def _predict(spec: ModelSpec, tensors: Mapping[str, tf.Tensor]) -> PredictionLog:
    request = predict_pb2.PredictRequest(model_spec=spec)
    for name, tensor in tensors.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(tensor))
    return PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))


def _of_example(spec: ModelSpec, texts: Mapping[str, tf.Tensor]) -> PredictionLog:
    request_cls = {
        CLASSIFY: classification_pb2.ClassificationRequest,
        REGRESS: regression_pb2.RegressionRequest,
    }[spec.signature_name]
    request = request_cls(model_spec=spec)
    example = request.input.example_list.examples.add()
    for name, tensor in texts.items():
        values = tf.reshape(tensor, [-1]).numpy().tolist()
        example.features.feature[name].bytes_list.value.extend(values)
    if spec.signature_name == CLASSIFY:
        return PredictionLog(classify_log=prediction_log_pb2.ClassifyLog(request=request))
    return PredictionLog(regress_log=prediction_log_pb2.RegressLog(request=request))

"""Requests that TF Serving replays before it makes a version available."""

import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    predict_pb2,
    prediction_log_pb2,
    regression_pb2,
)

from serving.export.task_signatures import input_names


def warmup_requests(signatures, functions, model_name):
    """A request for each signature and bucket, so that no client pays for a new shape.

    Args:
        signatures: as `serving.export.signatures_of` gives them.
        functions: what its `functions` gives.
        model_name: str, the name in the requests' model_spec.

    Returns:
        list of `PredictionLog`.
    """
    requests = []
    for length in signatures.bucket_lengths():
        texts = signatures.sample(length)
        for name, function in functions.items():
            names = input_names(function)
            if names == ["inputs"]:
                requests.append(_of_example(model_name, name, texts))
            else:
                tensors = texts if texts.keys() >= set(names) else _tokens(functions, texts)
                requests.append(_predict(model_name, name, {key: tensors[key] for key in names}))
    return requests


def _tokens(functions, texts):
    """What the decoder reads, by name."""
    tokenize = functions["tokenize"]
    return tokenize(**{name: texts[name] for name in input_names(tokenize)})


def _predict(model_name, signature, tensors):
    request = predict_pb2.PredictRequest()
    _address(request, model_name, signature)
    for name, tensor in tensors.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(tensor))
    return prediction_log_pb2.PredictionLog(
        predict_log=prediction_log_pb2.PredictLog(request=request)
    )


def _of_example(model_name, signature, texts):
    request = {
        "classify": classification_pb2.ClassificationRequest,
        "regress": regression_pb2.RegressionRequest,
    }[signature]()
    _address(request, model_name, signature)
    example = request.input.example_list.examples.add()
    for name, tensor in texts.items():
        values = tf.reshape(tensor, [-1]).numpy().tolist()
        example.features.feature[name].bytes_list.value.extend(values)
    if signature == "classify":
        log = prediction_log_pb2.ClassifyLog(request=request)
        return prediction_log_pb2.PredictionLog(classify_log=log)
    log = prediction_log_pb2.RegressLog(request=request)
    return prediction_log_pb2.PredictionLog(regress_log=log)


def _address(request, model_name, signature):
    request.model_spec.name = model_name
    request.model_spec.signature_name = signature

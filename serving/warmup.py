"""Requests that TF Serving replays before it makes a version available."""

import tensorflow as tf
from tensorflow_serving.apis import classification_pb2, predict_pb2, prediction_log_pb2

from gpt1_keras.transforms import bucket_lengths


def warmup_requests(model, model_name):
    """One request for each signature and bucket, so that no client pays for a new shape.

    Args:
        model: `GPT1TextClassifier` with a preprocessor.
        model_name: str, the name in the requests' model_spec.

    Returns:
        list of `PredictionLog`.
    """
    requests = []
    fields = model.preprocessor.fields
    for length in bucket_lengths(model.preprocessor.sequence_length):
        texts = dict.fromkeys(fields, _text(length, len(fields)))
        ids = {"token_ids": [[0] * length], "padding_mask": [[1] * length]}
        tensors = {name: tf.constant([text]) for name, text in texts.items()}
        requests += [
            _predict(model_name, "serving_default", tensors),
            _predict(model_name, "tokenize", tensors),
            _predict(model_name, "tokens", {k: tf.constant(v, tf.int32) for k, v in ids.items()}),
            _classify(model_name, texts),
        ]
    return requests


def _text(length, segments):
    """A text that fills `length` tokens when it is framed as each of `segments`."""
    special = segments + 1
    # A full stop is a word, and a token, of its own in any vocabulary.
    return " ".join(["."] * ((length - special) // segments))


def _predict(model_name, signature, tensors):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model_name
    request.model_spec.signature_name = signature
    for name, tensor in tensors.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(tensor))
    return prediction_log_pb2.PredictionLog(
        predict_log=prediction_log_pb2.PredictLog(request=request)
    )


def _classify(model_name, texts):
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = model_name
    request.model_spec.signature_name = "classify"
    example = request.input.example_list.examples.add()
    for name, text in texts.items():
        example.features.feature[name].bytes_list.value.append(text.encode())
    return prediction_log_pb2.PredictionLog(
        classify_log=prediction_log_pb2.ClassifyLog(request=request)
    )

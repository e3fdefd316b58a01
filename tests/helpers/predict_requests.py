"""Requests that the server's tests send."""

import tensorflow as tf
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest

LONG = 10**9  # rounds of the signature `slow`: some hours


def request_for(signature, **inputs):
    request = PredictRequest(model_spec=ModelSpec(name="tiny", signature_name=signature))
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request

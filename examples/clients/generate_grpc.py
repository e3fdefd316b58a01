"""Continues texts over gRPC. It needs only: pip install tensorflow-serving-api

python generate_grpc.py localhost:8500 books "the road was long and" "she opened the door"
"""

import sys

import grpc
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

target, model, *prompts = sys.argv[1:]
request = PredictRequest()
request.model_spec.name, request.model_spec.signature_name = model, "generate"
request.inputs["text"].CopyFrom(tf.make_tensor_proto(prompts, tf.string))
# Each option has a value for each prompt, or one for all; what is left out has its default.
request.inputs["length"].CopyFrom(tf.make_tensor_proto([20], tf.int32))
request.inputs["temperature"].CopyFrom(tf.make_tensor_proto([0.8], tf.float32))
request.inputs["top_k"].CopyFrom(tf.make_tensor_proto([40], tf.int32))
request.inputs["top_p"].CopyFrom(tf.make_tensor_proto([1.0], tf.float32))
request.inputs["seed"].CopyFrom(tf.make_tensor_proto([0], tf.int32))
request.inputs["stop"].CopyFrom(tf.make_tensor_proto([["."]], tf.string))

# By default, gRPC takes replies of at most 4 MiB, and the server sends longer ones.
with grpc.insecure_channel(target, [("grpc.max_receive_message_length", -1)]) as channel:
    response = PredictionServiceStub(channel).Predict(request, timeout=60)

for text in response.outputs["text"].string_val:
    print(text.decode())

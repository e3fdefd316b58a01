"""Asks which choice is best, over gRPC. It needs only: pip install tensorflow-serving-api

python ask_choices_grpc.py localhost:8500 race "Anna fed the cat." "Who ate?" "the cat" "the dog"
"""

import sys

import grpc
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

target, model, context, question, *choices = sys.argv[1:]
request = PredictRequest()
request.model_spec.name = model
request.inputs["context"].CopyFrom(tf.make_tensor_proto([context], tf.string))
request.inputs["question"].CopyFrom(tf.make_tensor_proto([question], tf.string))
# A row for each question. Where questions differ in their number of choices, fill up with "".
request.inputs["choices"].CopyFrom(tf.make_tensor_proto([choices], tf.string))

# By default, gRPC takes replies of at most 4 MiB, and the server sends longer ones.
with grpc.insecure_channel(target, [("grpc.max_receive_message_length", -1)]) as channel:
    response = PredictionServiceStub(channel).Predict(request, timeout=10)

best = response.outputs["choice"].int_val[0]
scores = tf.make_ndarray(response.outputs["scores"])[0]
for number, (choice, score) in enumerate(zip(choices, scores)):
    print(f"{'->' if number == best else '  '}  {score:.4f}  {choice}")

"""Asks a classifier of pairs over gRPC. It needs only: pip install tensorflow-serving-api

python ask_pairs_grpc.py localhost:8500 mnli "It rains." "It is wet." "He sleeps." "He is awake."
"""

import sys

import grpc
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

target, model, *texts = sys.argv[1:]
premises, hypotheses = texts[::2], texts[1::2]
request = PredictRequest()
request.model_spec.name = model
request.inputs["premise"].CopyFrom(tf.make_tensor_proto(premises, tf.string))
request.inputs["hypothesis"].CopyFrom(tf.make_tensor_proto(hypotheses, tf.string))

# By default, gRPC takes replies of at most 4 MiB, and the server sends longer ones.
with grpc.insecure_channel(target, [("grpc.max_receive_message_length", -1)]) as channel:
    response = PredictionServiceStub(channel).Predict(request, timeout=10)

labels = response.outputs["label"].string_val
scores = tf.make_ndarray(response.outputs["scores"])
for premise, hypothesis, label, row in zip(premises, hypotheses, labels, scores):
    print(f"{label.decode()}  {max(row):.4f}  {premise}  {hypothesis}")

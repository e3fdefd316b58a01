"""Asks a classifier over gRPC. It needs only: pip install tensorflow-serving-api

python ask_grpc.py localhost:8500 sst2 "a joy to watch" "a waste of time"
python ask_grpc.py localhost:8500 sst2/labels/canary "a joy to watch"    # or sst2/versions/2
"""

import sys

import grpc
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

target, model, *texts = sys.argv[1:]
request = PredictRequest()
request.model_spec.name, kind, choice = f"{model}//".split("/")[:3]
if kind == "versions":
    request.model_spec.version.value = int(choice)
elif kind == "labels":
    request.model_spec.version_label = choice
request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts, tf.string))

# By default, gRPC takes replies of at most 4 MiB, and the server sends longer ones.
with grpc.insecure_channel(target, [("grpc.max_receive_message_length", -1)]) as channel:
    response = PredictionServiceStub(channel).Predict(request, timeout=10)

labels = response.outputs["label"].string_val
scores = tf.make_ndarray(response.outputs["scores"])
for text, label, row in zip(texts, labels, scores):
    print(f"{label.decode()}  {max(row):.4f}  {text}")

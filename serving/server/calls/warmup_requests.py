"""Reads and answers an export's warm-up requests, before its version is available."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError, Message
from grpc import StatusCode
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.inference_pb2 import MultiInferenceRequest
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

from serving.export_names import WARMUP_FILE
from serving.server.calls.inference import classify, multi_inference, predict, regress
from serving.server.errors import ServingError, invalid_argument
from serving.server.models.servable import Servable

_MAX_REQUESTS = 1000
_CALLS: Mapping[type, Callable[[Servable, Any], Message]] = {
    PredictRequest: predict,
    ClassificationRequest: classify,
    RegressionRequest: regress,
    MultiInferenceRequest: multi_inference,
}


def read_warmup(path: Path) -> list[Message]:
    """Returns the warm-up requests in a SavedModel's folder, or refuses its file."""
    file = path / WARMUP_FILE
    if not file.exists():
        return []
    try:
        records = list(tf.data.TFRecordDataset(str(file)).as_numpy_iterator())
        logs = [PredictionLog.FromString(record) for record in records]
    except (tf.errors.OpError, DecodeError) as error:
        raise ServingError(StatusCode.DATA_LOSS, f"{WARMUP_FILE}: {error}") from error
    if len(logs) > _MAX_REQUESTS:
        raise invalid_argument(f"{WARMUP_FILE}: more than {_MAX_REQUESTS} requests")
    requests = [getattr(log, log.WhichOneof("log_type") or "", log).request for log in logs]
    for request in requests:
        if type(request) not in _CALLS:
            raise invalid_argument(f"{WARMUP_FILE}: a request of type {type(request).__name__}")
    return requests


def warm_up(servable: Servable, rounds: int = 1) -> None:
    """Answers a version's warm-up requests, so that clients' first requests are not slow.

    Args:
        rounds: how often each is answered; 0 for no warm-up.
    """
    requests = read_warmup(servable.path) if rounds else []
    for request in requests:
        for _ in range(rounds):
            _CALLS[type(request)](servable, request)

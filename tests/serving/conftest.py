"""A tiny model with the signatures of an exported classifier, and a server that serves it."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis.model_service_pb2_grpc import ModelServiceStub
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from serving.server import Server
from serving.server.models.model_manager import ModelManager

TEXT = tf.TensorSpec([None], tf.string, name="text")
EXAMPLES = tf.TensorSpec([None], tf.string, name="inputs")
TOKEN_IDS = tf.TensorSpec([None, None], tf.int32, name="token_ids")
PADDING_MASK = tf.TensorSpec([None, None], tf.int32, name="padding_mask")
ROUNDS = tf.TensorSpec([None], tf.int32, name="rounds")


class TinyClassifier(tf.Module):
    """Scores a text by its length: each byte makes it 0.1 more positive, modulo ten bytes."""

    @tf.function(input_signature=[TEXT])
    def default(self, text):
        num_tokens = tf.strings.length(text)
        return {
            **_label_and_scores(num_tokens),
            "num_tokens": num_tokens,
            "truncated": num_tokens > 512,
        }

    @tf.function(input_signature=[TEXT])
    def explain(self, text):
        """Each byte is a word, and each has 0.75 less of a share than the one before it."""
        words = tf.strings.bytes_split(text)
        starts = tf.ragged.range(tf.cast(words.row_lengths(), tf.int32))
        return {
            **self.default(text),
            "words": words.to_tensor(),
            "word_fields": words.with_values(tf.fill(tf.shape(words.values), "text")).to_tensor(),
            "word_starts": starts.to_tensor(),
            "word_ends": (starts + 1).to_tensor(),
            "word_shares": (1.0 - 0.75 * tf.cast(starts, tf.float32)).to_tensor(),
            "num_words": tf.strings.length(text),
        }

    @tf.function(input_signature=[EXAMPLES])
    def classify(self, inputs):
        features = tf.io.parse_example(inputs, {"text": tf.io.FixedLenFeature([], tf.string)})
        scores = _label_and_scores(tf.strings.length(features["text"]))["scores"]
        return {
            "classes": tf.broadcast_to(["negative", "positive"], tf.shape(scores)),
            "scores": scores,
        }

    @tf.function(input_signature=[EXAMPLES])
    def misclassify(self, inputs):
        """Has the names of a classification, but not its shape."""
        return {"scores": tf.cast(tf.strings.length(inputs), tf.float32)}

    @tf.function(input_signature=[EXAMPLES])
    def regress(self, inputs):
        features = tf.io.parse_example(inputs, {"text": tf.io.FixedLenFeature([], tf.string)})
        return {"outputs": tf.cast(tf.strings.length(features["text"]), tf.float32) / 10.0}

    @tf.function(input_signature=[EXAMPLES])
    def misregress(self, inputs):
        """Has the names of a regression, but not its type."""
        return {"outputs": tf.strings.length(inputs)}

    @tf.function(input_signature=[TOKEN_IDS, PADDING_MASK])
    def tokens(self, token_ids, padding_mask):
        return _label_and_scores(tf.reduce_sum(token_ids * padding_mask, axis=1))

    @tf.function(input_signature=[TEXT])
    def echo(self, text):
        return {"text": text, "text_bytes": text}

    @tf.function(input_signature=[ROUNDS])
    def slow(self, rounds):
        """Takes some microseconds for each round."""
        return {
            "left": tf.while_loop(lambda n: tf.reduce_any(n > 0), lambda n: [n - 1], [rounds])[0]
        }


def _label_and_scores(number):
    positive = tf.cast(number % 10, tf.float32) / 10.0
    scores = tf.stack([1.0 - positive, positive], axis=-1)
    label = tf.gather(["negative", "positive"], tf.argmax(scores, axis=-1))
    return {"label": label, "scores": scores}


@dataclass(frozen=True)
class Client:
    """The ways to reach the running server."""

    target: str
    rest_url: str
    socket_path: str
    prediction: PredictionServiceStub
    model: ModelServiceStub
    models: ModelManager


@pytest.fixture(scope="session")
def model_base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base path where version 3 is the latest, among things that are not versions."""
    base = tmp_path_factory.mktemp("tiny")
    model = TinyClassifier()
    signatures = {
        "serving_default": model.default,
        "classify": model.classify,
        "misclassify": model.misclassify,
        "regress": model.regress,
        "misregress": model.misregress,
        "tokens": model.tokens,
        "explain": model.explain,
        "echo": model.echo,
        "slow": model.slow,
    }
    tf.saved_model.save(model, str(base / "3"), signatures=signatures)
    for other in ("2", "latest", "4.old", "-5", "٧", "9" * 19):
        (base / other).mkdir()
    (base / "9").write_text("not a folder")
    return base


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """A function that finds a free port for REST, where 0 does not stand for one."""

    def find() -> int:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            return listener.getsockname()[1]

    return find


@pytest.fixture(scope="session")
def client(
    model_base_path: Path, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """Clients of a running server of the model `tiny`."""
    rest_api_port = free_port()
    folder = tmp_path_factory.mktemp("server")
    monitoring = folder / "monitoring.config"
    monitoring.write_text('prometheus_config { enable: true path: "/metrics" }')
    server = Server(
        "tiny",
        str(model_base_path),
        port=0,
        grpc_socket_path=str(folder / "socket"),
        enable_grpc_healthcheck_service=True,
        rest_api_port=rest_api_port,
        monitoring_config_file=str(monitoring),
        max_request_bytes=2**20,
    )
    with server, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield Client(
            target=f"127.0.0.1:{server.port}",
            rest_url=f"http://127.0.0.1:{rest_api_port}",
            socket_path=str(folder / "socket"),
            prediction=PredictionServiceStub(channel),
            model=ModelServiceStub(channel),
            models=server.models,
        )


@pytest.fixture(scope="session")
def error_of() -> Callable[..., str]:
    """A function that makes a call, which must fail, and returns "CODE: message"."""

    def call(method: Callable[..., Any], request: Any) -> str:
        with pytest.raises(grpc.RpcError) as caught:
            method(request, timeout=30)
        return f"{caught.value.code().name}: {caught.value.details()}"

    return call

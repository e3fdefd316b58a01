"""Servers on this machine, and loads on them.

An export is under `serving.server`, a peer behind FastAPI. Clients ask again after each answer, or
requests come at a rate.
"""

import contextlib
import dataclasses
import http.client
import itertools
import json
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import psutil
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from benchmarks.harness.turns import Worker

_TIMEOUT = 120.0  # seconds
_MAX_CLIENTS = 1024


@contextlib.contextmanager
def serve_export(path, *flags, log=None):
    """Serves the export at a base path in another process, which logs to a file.

    Yields:
        `(pid, port, rest_port)`.
    """
    rest_port = _free_port()
    command = [sys.executable, "-m", "serving.server", "--model_name=model", "--port=0"]
    command += [f"--model_base_path={path}", f"--rest_api_port={rest_port}", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        # The last of the lines that say where it serves: "  gRPC: localhost:PORT".
        lines = iter(process.stdout.readline, "")
        ready = next((line for line in lines if "gRPC: " in line), None)
        if ready is None:
            raise SystemExit(f"The server of {path} did not start.")
        yield process.pid, int(ready.rpartition(":")[2]), rest_port
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def serve_peer(peer, **setting):
    """Serves a classifier of a peer; yields `(pid, port)`."""
    port = _free_port()
    with Worker("peers.fastapi_app:serve", peer=peer, port=port, **setting) as worker:
        while not _answers(port):
            if not worker.is_running():
                worker.summary()  # raises an error with what it printed
            time.sleep(0.2)
        yield worker.pid, port


def megabytes(pid):
    """Returns the resident memory of a process, in MB."""
    return psutil.Process(pid).memory_info().rss / 2**20


def _answers(port):
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
        return True
    return False


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class GrpcLoad:
    """Predicts over gRPC, one text in each request.

    Args:
        port: of the server on this machine.
        model: its name.
        texts: list of str.
    """

    def __init__(self, port, model, texts):
        self._stub = PredictionServiceStub(grpc.insecure_channel(f"127.0.0.1:{port}"))
        self._requests = []
        for text in texts:
            request = PredictRequest()
            request.model_spec.name = model
            request.inputs["text"].CopyFrom(tf.make_tensor_proto([text]))
            self._requests.append(request)

    def client(self):
        """Returns a function that sends one of the texts, by its index."""
        return lambda index: self._stub.Predict(self._requests[index], timeout=_TIMEOUT)


class HttpLoad:
    """Posts one JSON document in each request, over a connection that each client keeps.

    Args:
        path: where to post to.
        documents: list of JSON values.
    """

    def __init__(self, port, path, documents):
        self._port, self._path = port, path
        self._bodies = [json.dumps(document).encode() for document in documents]

    def client(self):
        """Returns a function that sends one of the documents, by its index."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT)
        headers = {"Content-Type": "application/json"}

        def ask(index):
            connection.request("POST", self._path, self._bodies[index], headers)
            response = connection.getresponse()
            content = response.read()
            if response.status != 200:
                raise OSError(f"HTTP {response.status}: {content[:200]!r}")

        return ask


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What a load saw.

    Attributes:
        latencies: list of the seconds of each request that was answered.
        seconds: how long it took in all.
    """

    latencies: list
    errors: list
    seconds: float

    @property
    def rate(self):
        """Answers a second."""
        return len(self.latencies) / self.seconds


def measure(new_client, num_texts, concurrency, seconds):
    """Puts a load on a server for some time.

    Args:
        new_client: makes a client, a function of the index of one of the texts to send.
        num_texts: how many texts it has; they are sent one after another, again and again.
        concurrency: the number of clients.
        seconds: float, after which no client sends another request.

    Returns:
        `Measurement`.
    """
    indices = itertools.count()  # which threads share
    latencies, errors = [], []
    begin = time.perf_counter()

    def work():
        ask = new_client()
        while time.perf_counter() - begin < seconds:
            index = next(indices)
            started = time.perf_counter()
            try:
                ask(index % num_texts)
            except (grpc.RpcError, OSError, http.client.HTTPException) as error:
                errors.append(str(error))
                ask = new_client()
            else:
                latencies.append(time.perf_counter() - started)

    with ThreadPoolExecutor(concurrency) as pool:
        clients = [pool.submit(work) for _ in range(concurrency)]
    for client in clients:
        client.result()
    return Measurement(latencies, errors, time.perf_counter() - begin)


def arrive(ask, rate, seconds):
    """Sends requests at a rate, whether earlier ones are answered or not.

    Args:
        ask: function of a request's number and of the time when it is due; raises nothing.
        rate: requests per second.
        seconds: for how long; it then waits for the requests that are still open.

    Returns:
        The seconds until the last was sent.
    """
    begin = time.perf_counter()
    with ThreadPoolExecutor(_MAX_CLIENTS) as pool:
        for number in range(round(rate * seconds)):
            due = begin + number / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            pool.submit(ask, number, due)
        return time.perf_counter() - begin


def percentiles(latencies, *ranks):
    """Returns percentiles in milliseconds, as cells of a table; empty cells if there are none."""
    if not len(latencies):
        return [""] * len(ranks)
    return [f"{1e3 * value:.0f}" for value in np.percentile(latencies, ranks)]

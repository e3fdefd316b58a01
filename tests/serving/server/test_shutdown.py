"""A server that is told to stop takes nothing new, answers open requests, and ends in time."""

import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.request

import grpc
import pytest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from serving.server import Server, server
from serving.server.models.servable import Servable
from tests.helpers.predict_requests import LONG, request_for


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_run_that_does_not_end(model_base_path, free_port, monkeypatch):
    """It cannot keep the server from ending, nor others from knowing that it ends."""
    monkeypatch.setattr(server, "_GRACE_SECONDS", 2.0)
    runs, run = [], Servable.run
    monkeypatch.setattr(Servable, "run", lambda *given: runs.append(given) or run(*given))
    rest_api_port = free_port()
    serving = Server("tiny", str(model_base_path), port=0, rest_api_port=rest_api_port)
    serving.start()
    stopping = threading.Thread(target=serving.stop)
    body = json.dumps({"signature_name": "slow", "inputs": [LONG]}).encode()
    url = f"http://127.0.0.1:{rest_api_port}/v1/models/tiny:predict"
    rest_errors = []

    def ask_over_rest():
        try:
            urllib.request.urlopen(url, body, timeout=60)
        except urllib.error.HTTPError as error:
            rest_errors.append((error.code, json.load(error)))

    asking = threading.Thread(target=ask_over_rest)
    asking.start()
    kept = http.client.HTTPConnection("127.0.0.1", rest_api_port, timeout=60)
    assert status_over(kept) == 200
    with grpc.insecure_channel(f"127.0.0.1:{serving.port}") as channel:
        stub = PredictionServiceStub(channel)
        running = stub.Predict.future(request_for("slow", rounds=[LONG]))
        until(lambda: len(runs) == 2)
        stopping.start()
        until(lambda: not is_open(rest_api_port))
        assert not is_open(serving.port)
        assert status_over(kept) == 503
        with pytest.raises(grpc.RpcError) as caught:
            stub.Predict(request_for("", text=["abc"]), timeout=30)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert stopping.is_alive()  # all of that while the others are in flight
        assert not running.done()
        assert running.exception(timeout=60).code() in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.CANCELLED,
        )
    for thread in (stopping, asking):
        thread.join(60)
        assert not thread.is_alive()
    [(status, document)] = rest_errors
    assert status == 500
    assert document["error"].startswith("Loop execution was cancelled.")
    assert len(runs) == 2  # the request after the stop was not run


def status_over(connection):
    """The status of a reply over a connection that is kept open."""
    connection.request("GET", "/v1/models/tiny")
    with connection.getresponse() as response:
        response.read()
        return response.status


def is_open(port):
    """Tells whether anybody listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:
        return True
    return True

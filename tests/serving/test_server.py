"""The server as a program: it starts, stops without losing requests, or says why it cannot."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from serving import server

ROUNDS = 600_000  # of the signature `slow`: some seconds


def ask_slowly_over_grpc(port):
    request = PredictRequest(model_spec=ModelSpec(name="tiny", signature_name="slow"))
    request.inputs["rounds"].CopyFrom(tf.make_tensor_proto([ROUNDS]))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        response = PredictionServiceStub(channel).Predict(request, timeout=60)
    return list(response.outputs["left"].int_val)


def ask_slowly_over_rest(port):
    body = json.dumps({"signature_name": "slow", "inputs": [ROUNDS]}).encode()
    url = f"http://127.0.0.1:{port}/v1/models/tiny:predict"
    with urllib.request.urlopen(url, body, timeout=60) as response:
        return json.load(response)["outputs"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_the_server_after_the_requests_in_flight(model_base_path, free_port, number):
    rest_api_port = free_port()
    command = [sys.executable, "-m", "serving.server", "--port=0", "--model_name=tiny"]
    command += [f"--model_base_path={model_base_path}", f"--rest_api_port={rest_api_port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        ready = process.stdout.readline()
        begin, _, rest = ready.partition(" (gRPC)")
        assert begin.startswith("Serving tiny version 3 at 127.0.0.1:")
        assert rest == f" and 127.0.0.1:{rest_api_port} (REST)\n"
        with ThreadPoolExecutor() as pool:
            answers = [
                pool.submit(ask_slowly_over_grpc, begin.rpartition(":")[2]),
                pool.submit(ask_slowly_over_rest, rest_api_port),
            ]
            time.sleep(0.7)
            process.send_signal(number)
            assert [answer.result() for answer in answers] == [[0], [0]]
        assert process.wait() == 0
        assert process.stdout.read() == ""
        watchdog.cancel()


def test_stopped_server_lets_go_of_its_ports(model_base_path, free_port):
    rest_api_port = free_port()
    with server.Server("tiny", str(model_base_path), port=0, rest_api_port=rest_api_port) as first:
        port = first.port
    with server.Server("tiny", str(model_base_path), port=port, rest_api_port=rest_api_port):
        pass


def broken_model(folder):
    (folder / "1").mkdir()
    (folder / "1" / "saved_model.pb").write_bytes(b"not a SavedModel")


def no_model(folder):
    (folder / "1").mkdir()


def no_version(folder):
    (folder / "latest").mkdir()


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (broken_model, "Cannot load version 1 of model tiny: Cannot parse file "),
        (no_model, "Cannot load version 1 of model tiny: SavedModel file does not exist at: "),
        (no_version, "No version of model tiny under base path {}: expected a folder named by a "),
        (lambda folder: folder.rmdir(), "Base path {} of model tiny is not a folder"),
    ],
)
def test_models_that_cannot_be_loaded(tmp_path, capsys, prepare, message):
    prepare(tmp_path)
    assert server.main(["--model_name=tiny", f"--model_base_path={tmp_path}"]) == 1
    assert_one_line(capsys, message.format(tmp_path))


@pytest.mark.parametrize("kind", ["gRPC", "REST"])
def test_ports_that_are_in_use(model_base_path, free_port, capsys, kind):
    ports = {"gRPC": free_port(), "REST": free_port()}
    arguments = ["--model_name=tiny", f"--model_base_path={model_base_path}"]
    arguments += [f"--port={ports['gRPC']}", f"--rest_api_port={ports['REST']}"]
    with socket.create_server(("127.0.0.1", ports[kind])):
        assert server.main(arguments) == 1
    assert_one_line(capsys, f"Cannot listen for {kind} on 127.0.0.1:{ports[kind]}: ")


def assert_one_line(capsys, beginning):
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(beginning)
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("port", ["65536", "-1", "http", ""])
def test_ports_that_are_none(capsys, port):
    with pytest.raises(SystemExit) as caught:
        server.main(["--model_base_path=models", f"--port={port}"])
    assert caught.value.code == 2
    assert f"expected a port from 0 to 65535, received '{port}'" in capsys.readouterr().err

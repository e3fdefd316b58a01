"""The server as a program: it starts, stops without losing requests, or says why it cannot."""

import functools
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from serving.server import Server, addresses
from serving.server.__main__ import main

ROUNDS = 300_000  # of the signature `slow`: some seconds
READY = f"""\
Serving tiny version 3
  threads for one op (--tensorflow_intra_op_parallelism): all cores
  requests that run at once (--grpc_max_threads): {max(16, 4 * os.cpu_count())}
  page: http://localhost:{{rest}}/
  REST: http://localhost:{{rest}}/v1/models/tiny
  gRPC: localhost:{{port}}
"""
ANY_PORT = ["--port=0", "--rest_api_port=0"]


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


@contextmanager
def running(*arguments):
    """The server as a process of its own, and the six lines that it prints once it is ready."""
    command = [sys.executable, "-m", "serving.server", "--model_name=tiny", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        try:
            yield process, "".join(process.stdout.readline() for _ in range(6))
        finally:
            process.kill()
            watchdog.cancel()


def assert_answered_though_stopped(stop, port, rest_api_port):
    """Requests that are in flight when the server is told to stop are answered."""
    with ThreadPoolExecutor() as pool:
        answers = [
            pool.submit(ask_slowly_over_grpc, port),
            pool.submit(ask_slowly_over_rest, rest_api_port),
        ]
        time.sleep(0.7)
        stop()
        assert [answer.result() for answer in answers] == [[0], [0]]


@pytest.fixture
def signal_handlers():
    """Restores the handlers that the program replaces when it runs in this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signal_handlers")
def test_ctrl_c_stops_the_server_after_the_requests_in_flight(model_base_path, free_port, capsys):
    """In this process, which spares importing TensorFlow once more."""
    rest_api_port = free_port()

    def interrupt():
        ready, deadline = "", time.monotonic() + 60
        while ready.count("\n") < 4:
            assert time.monotonic() < deadline
            time.sleep(0.01)
            ready += capsys.readouterr().out
        port = int(ready.rpartition(":")[2])
        assert ready == READY.format(port=port, rest=rest_api_port)
        stop = functools.partial(os.kill, os.getpid(), signal.SIGINT)
        assert_answered_though_stopped(stop, port, rest_api_port)

    arguments = [f"--model_base_path={model_base_path}", f"--rest_api_port={rest_api_port}"]
    with ThreadPoolExecutor() as pool:
        interrupted = pool.submit(interrupt)
        assert main(["--model_name=tiny", "--port=0", *arguments]) == 0
        interrupted.result()
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_a_killed_server_starts_again_where_it_was(model_base_path, free_port, tmp_path):
    port, rest_api_port = free_port(), free_port()
    arguments = [f"--model_base_path={model_base_path}", f"--port={port}"]
    arguments += [f"--rest_api_port={rest_api_port}", f"--grpc_socket_path={tmp_path / 'socket'}"]
    # As TensorFlow Serving's own integration tests start it.
    (tmp_path / "batching.config").write_text("max_batch_size { value: 4 }")
    arguments += ["--enable_batching", f"--batching_parameters_file={tmp_path / 'batching.config'}"]
    arguments += ["--prefer_tflite_model=true", "--rest_api_timeout_in_ms=60000"]
    arguments += ["--grpc_channel_arguments=grpc.max_connection_age_ms=9000,grpc.lb_policy_name=x"]
    with running(*arguments) as (process, _), ThreadPoolExecutor() as pool:
        asking = [pool.submit(ask_slowly_over_grpc, port) for _ in range(4)]
        asking += [pool.submit(ask_slowly_over_rest, rest_api_port) for _ in range(4)]
        time.sleep(0.7)
        process.send_signal(signal.SIGKILL)
        for each in asking:  # clients know at once
            with pytest.raises((grpc.RpcError, OSError, http.client.HTTPException)):
                each.result(timeout=20)
    with running(*arguments) as (process, ready):
        assert ready == READY.format(port=port, rest=rest_api_port)
        with grpc.insecure_channel(f"unix:{tmp_path / 'socket'}") as channel:
            assert grpc.channel_ready_future(channel).result(timeout=30) is None
        assert_answered_though_stopped(process.terminate, port, rest_api_port)
        assert process.wait() == 0
        assert process.stdout.read() == ""


def test_a_stopped_server_releases_its_ports(model_base_path, free_port):
    rest_api_port = free_port()
    with Server("tiny", str(model_base_path), port=0, rest_api_port=rest_api_port) as first:
        port = first.port
    with Server("tiny", str(model_base_path), port=port, rest_api_port=rest_api_port):
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
        (broken_model, "Cannot load version 1 of model tiny: Error parsing message"),
        (no_model, "Cannot load version 1 of model tiny: [Errno 2] No such file or directory: "),
        (no_version, "No version of model tiny under base path {}: expected a folder named by a "),
        (lambda folder: folder.rmdir(), "Base path {} of model tiny is not a folder"),
    ],
)
def test_models_that_cannot_be_loaded(tmp_path, capsys, prepare, message):
    prepare(tmp_path)
    assert main(["--model_name=tiny", f"--model_base_path={tmp_path}", *ANY_PORT]) == 1
    assert_one_line(capsys, message.format(tmp_path))


@pytest.mark.parametrize("kind", ["gRPC", "REST"])
def test_ports_that_are_in_use(tmp_path, free_port, capsys, kind):
    """It is told before the model is loaded: here there is none."""
    ports = {"gRPC": free_port(), "REST": free_port()}
    arguments = ["--model_name=tiny", f"--model_base_path={tmp_path}"]
    arguments += [f"--port={ports['gRPC']}", f"--rest_api_port={ports['REST']}"]
    with socket.create_server(("127.0.0.1", ports[kind])):
        assert main(arguments) == 1
    message = f"Cannot listen for {kind} on 127.0.0.1:{ports[kind]}: Address already in use. "
    assert_one_line(capsys, message)


def assert_one_line(capsys, message):
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {message}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("port", ["65536", "-1", "http", ""])
def test_invalid_ports(capsys, port):
    with pytest.raises(SystemExit) as caught:
        main(["--model_base_path=models", f"--port={port}"])
    assert caught.value.code == 2
    assert f"expected a whole number from 0 to 65535, received '{port}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "value"),
    [([], False), (["--flag"], True), (["--flag=true"], True), (["--flag=false"], False)],
)
def test_booleans_as_tensorflow_serving_takes_them(arguments, value):
    name = "enable_grpc_healthcheck_service"
    values, _ = main.parse([each.replace("flag", name) for each in arguments])
    assert values[name] is value


def test_a_model_is_needed(capsys):
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert "expected --model_base_path or --model_config_file" in capsys.readouterr().err


def test_a_model_without_a_name(model_base_path, capsys):
    assert main(["--model_name=", f"--model_base_path={model_base_path}", *ANY_PORT]) == 1
    assert_one_line(capsys, "Expected a name of every model; received an empty one")


def test_a_certificate_that_is_broken(model_base_path, tmp_path, capsys):
    """It is not reported as a port that is in use."""
    file = tmp_path / "ssl.config"
    file.write_text("server_key: 'no key' server_cert: 'no certificate'")
    arguments = [f"--model_base_path={model_base_path}", f"--ssl_config_file={file}"]
    assert main([*arguments, *ANY_PORT]) == 1
    assert_one_line(capsys, "Expected a key without a password and its certificate, and certific")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_both_loopback_addresses_are_localhost(model_base_path, free_port, address):
    if address not in addresses.of_host("localhost"):
        pytest.skip("This machine has no IPv6.")
    rest_api_port = free_port()
    with Server("tiny", str(model_base_path), port=0, rest_api_port=rest_api_port) as server:
        target = addresses.with_port(address, server.port)
        with grpc.insecure_channel(target) as channel:
            assert grpc.channel_ready_future(channel).result(timeout=30) is None
        url = f"http://{addresses.with_port(address, rest_api_port)}/v1/models/tiny"
        with urllib.request.urlopen(url, timeout=30) as response:
            assert response.status == 200


def test_an_ipv6_address(model_base_path, free_port):
    if "::1" not in addresses.of_host("localhost"):
        pytest.skip("This machine has no IPv6.")
    port = free_port()
    with Server("tiny", str(model_base_path), host="::1", port=0, rest_api_port=port):
        with urllib.request.urlopen(f"http://[::1]:{port}/v1/models/tiny", timeout=30) as response:
            assert response.status == 200
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=30)


def test_channel_arguments_reach_grpc(model_base_path):
    arguments = "grpc.max_receive_message_length=1000,grpc.max_connection_age_ms=60000"
    with Server(
        "tiny", str(model_base_path), port=0, rest_api_port=0, grpc_channel_arguments=arguments
    ) as server:
        request = PredictRequest(model_spec=ModelSpec(name="tiny"))
        request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a" * 1000]))
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            with pytest.raises(grpc.RpcError) as caught:
                PredictionServiceStub(channel).Predict(request, timeout=30)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_invalid_configuration_files(tmp_path, capsys):
    file = tmp_path / "models.config"
    assert main([f"--model_config_file={file}", *ANY_PORT]) == 1
    assert_one_line(capsys, f"[Errno 2] No such file or directory: '{file}'")
    file.write_text("model_config_list { config { nam: 'tiny' } }")
    assert main([f"--model_config_file={file}", *ANY_PORT]) == 1
    words = "Error parsing text-format tensorflow.serving.ModelServerConfig: 1:30: Message type "
    assert_one_line(capsys, words)

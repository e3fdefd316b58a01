"""Connections to the server: sockets, TLS, health, deadlines, limits, metrics."""

import contextlib
import errno
import gzip
import http.client
import json
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
import zlib
from concurrent.futures import ThreadPoolExecutor
from socketserver import TCPServer

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from prometheus_client.parser import text_string_to_metric_families
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from serving.server import Server, grpc_service, limits, rest_service
from serving.server.config_files import ConfigError, read_metrics_path
from serving.server.errors import ServingError
from serving.server.grpc_server import read_credentials
from serving.server.inference import Resources
from serving.server.limits import Admission, RequestLimits
from serving.server.models.model_manager import ModelManager
from serving.server.prometheus_metrics import Metrics
from serving.server.rest_service import RestCalls
from tests.helpers.predict_requests import LONG, request_for


def num_tokens(channel, **options):
    response = PredictionServiceStub(channel).Predict(
        request_for("", text=["abc"]), timeout=30, **options
    )
    return list(response.outputs["num_tokens"].int_val)


def page(client):
    with urllib.request.urlopen(f"{client.rest_url}/metrics", timeout=30) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return response.read().decode()


def metric(client, name, **labels):
    """The value of a metric, as Prometheus's own parser reads the page; 0 if it is absent."""
    samples = {
        sample.name.removesuffix("_total"): sample.value  # which the parser adds to counters
        for family in text_string_to_metric_families(page(client))
        for sample in family.samples
        if labels.items() <= sample.labels.items()
    }
    return samples.get(name, 0)


def test_loopback_is_where_it_listens(client):
    port = int(client.target.rpartition(":")[2])
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
    outside = [address for address in addresses if not address.startswith(("127.", "::1"))]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; tells this machine's own address
            outside.append(probe.getsockname()[0])
        except OSError:
            pass
    for address in outside:
        with pytest.raises(OSError):
            socket.create_connection((address, port), timeout=5).close()


def test_unix_socket(client):
    with grpc.insecure_channel(f"unix:{client.socket_path}") as channel:
        assert num_tokens(channel) == [3]


@pytest.mark.parametrize("service", ["", "PredictionService", "ModelService"])
def test_health(client, service):
    with grpc.insecure_channel(client.target) as channel:
        response = HealthStub(channel).Check(HealthCheckRequest(service=service), timeout=30)
    assert response.status == HealthCheckResponse.SERVING


@pytest.mark.parametrize("compression", list(grpc.Compression))
def test_health_of_an_unknown_service(client, compression):
    request = HealthCheckRequest(service="Other" * 100)  # clients compress what becomes shorter
    with grpc.insecure_channel(client.target) as channel:
        health = HealthStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            health.Check(request, timeout=30, compression=compression)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        watched = health.Watch(request, timeout=30, compression=compression)
        assert next(watched).status == HealthCheckResponse.SERVICE_UNKNOWN
        watched.cancel()


CALLS = [
    "tensorflow.serving.PredictionService/Predict",
    "tensorflow.serving.ModelService/GetModelStatus",
    "grpc.health.v1.Health/Check",
    "grpc.health.v1.Health/Watch",
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_without_a_message(client, call):
    with grpc.insecure_channel(client.target) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            next(channel.stream_stream(f"/{call}")(iter(()), timeout=30))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert caught.value.details() == "Expected a message, received none"


def test_calls_that_send_no_message_keep_nobody_out(model_base_path, monkeypatch):
    """gRPC waits for it without an end, and each call has a thread."""
    over = threading.Event()

    def nothing():
        over.wait(60)
        yield from ()

    with (
        Server(
            *("tiny", str(model_base_path)),
            port=0,
            rest_api_port=0,
            enable_grpc_healthcheck_service=True,
        ) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as hostile,
    ):
        calls = [hostile.stream_stream(f"/{CALLS[i % 4]}")(nothing()) for i in range(240)]

        def number_ended():
            return sum(call.done() for call in calls)

        assert num_tokens(channel) == [3]
        wait_until(lambda: number_ended() >= len(calls) - limits.MOST_CALLS)
        assert num_tokens(channel) == [3]
        assert number_ended() < len(calls)  # the others have more time
        monkeypatch.setattr(server._grpc._receiving, "_seconds", 0.0)
        wait_until(lambda: number_ended() == len(calls))
        assert {call.code() for call in calls} == {grpc.StatusCode.CANCELLED}
        over.set()


def test_calls_that_are_cancelled_do_not_run(model_base_path):
    with (
        Server("tiny", str(model_base_path), port=0, rest_api_port=0, grpc_max_threads=1) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        predict = PredictionServiceStub(channel).Predict
        running = predict.future(request_for("slow", rounds=[LONG]))
        wait_until(lambda: b"running_requests 1.0" in server.metrics.page())
        left = [predict.future(request_for("slow", rounds=[LONG])) for _ in range(10)]
        wait_until(lambda: b"queued_requests 10.0" in server.metrics.page())
        for each in left:
            each.cancel()
        line = b':tensorflow:serving:request_count{model_name="tiny",status="CANCELLED"} 10.0'
        wait_until(lambda: line in server.metrics.page())
        assert b"queued_requests 0.0" in server.metrics.page()
        assert not running.done()
        server.models.cancel()
        assert running.code() is grpc.StatusCode.CANCELLED


def test_bodies_that_are_too_many(model_base_path, free_port):
    """Clients that hold back the end of long bodies keep out no short ones."""
    port, size = free_port(), 2**17
    head = b"POST /v1/models/tiny:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    url = f"http://127.0.0.1:{port}/v1/models/tiny:predict"

    def ask(spaces):
        try:
            body = b'{"instances": ["a"]}' + b" " * spaces  # a long body, and a short answer
            with urllib.request.urlopen(url, body, timeout=30) as response:
                return response.status, ""
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["error"]

    with Server("tiny", str(model_base_path), port=0, rest_api_port=port, max_request_bytes=size):
        # 16 fill it. One is refused if a question comes first, and another takes its place.
        held = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(20)]
        for each in held:
            each.sendall(head % size + b" " * (size - 1))
        wait_until(lambda: ask(2**16)[0] == 429)
        status, error = ask(2**16)
        assert (status, error[:18]) == (429, "The server is busy")
        assert ask(0) == (200, "")
        for each in held:
            each.close()
        wait_until(lambda: ask(2**16)[0] == 200)


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_deadline_ends_the_run(client):
    labels = {"model_name": "tiny", "status": "DEADLINE_EXCEEDED"}
    name = ":tensorflow:serving:request_count"
    before = metric(client, name, **labels)
    with pytest.raises(grpc.RpcError) as caught:
        client.prediction.Predict(request_for("slow", rounds=[LONG]), timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    deadline = time.monotonic() + 30
    while metric(client, name, **labels) == before:  # counted once the run has ended
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_time_limit_of_rest(model_base_path, free_port):
    port = free_port()
    body = json.dumps({"signature_name": "slow", "inputs": [LONG]}).encode()
    with Server(
        "tiny", str(model_base_path), port=0, rest_api_port=port, rest_api_timeout_in_ms=200
    ):
        url = f"http://127.0.0.1:{port}/v1/models/tiny:predict"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url, body, timeout=30)
    assert caught.value.code == 504
    assert json.load(caught.value) == {"error": "Timed out waiting for notification"}


def test_the_time_limit_of_rest_covers_parsing(client, monkeypatch):
    parse = rest_service.parse_document

    def parse_slowly(body):
        time.sleep(0.02)
        return parse(body)

    monkeypatch.setattr(rest_service, "parse_document", parse_slowly)
    metrics = Metrics()
    models = ModelManager(metrics=metrics)
    resources = Resources(models, metrics, Admission(1, 0, metrics), RequestLimits())
    calls = RestCalls(resources, timeout=0.01)
    servable = next(iter(client.models))
    monkeypatch.setattr(models, "find", lambda spec: servable)
    with pytest.raises(ServingError, match="Timed out before the run began") as caught:
        calls.answer("POST", "/v1/models/tiny:predict", b'{"instances": ["a"]}')
    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.usefixtures("time_limit")
def test_overload_is_refused_at_once(model_base_path, free_port):
    """Of many requests at once, as many are answered as may run and wait; probes always are."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1/models/tiny"
    body = json.dumps({"signature_name": "slow", "inputs": [LONG]}).encode()

    def ask_over_rest(_):
        try:
            urllib.request.urlopen(f"{url}:predict", body, timeout=30)
        except urllib.error.HTTPError as error:
            return error.code

    def ask_over_grpc(_):
        try:
            PredictionServiceStub(channel).Predict(request_for("slow", rounds=[LONG]), timeout=20)
        except grpc.RpcError as error:
            return error.code()

    with (
        Server(
            "tiny",
            str(model_base_path),
            port=0,
            rest_api_port=port,
            rest_api_timeout_in_ms=3000,
            grpc_max_threads=1,
            max_queued_requests=2,
        ) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        ThreadPoolExecutor(60) as pool,
    ):
        full = [pool.submit(ask_over_rest, None) for _ in range(3)]
        while b"queued_requests 2.0" not in server.metrics.page():
            time.sleep(0.01)
        refused = [pool.submit(ask_over_rest, None) for _ in range(10)]
        refused += [pool.submit(ask_over_grpc, None) for _ in range(40)]
        codes = {each.result() for each in refused}
        with urllib.request.urlopen(url, timeout=30) as status:
            assert status.status == 200
        assert not any(each.done() for each in full)
        assert codes == {429, grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert {each.result() for each in full} == {504}


@pytest.mark.slow
@pytest.mark.usefixtures("time_limit")
def test_a_storm_is_refused_in_words(model_base_path):
    """gRPC's own limit, of 1,000 requests that nobody has looked at, would cancel some."""
    with (
        Server(
            "tiny", str(model_base_path), port=0, rest_api_port=0, max_queued_requests=0
        ) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        predict = PredictionServiceStub(channel).Predict
        request = request_for("slow", rounds=[1000])
        calls = [predict.future(request, timeout=60) for _ in range(3000)]
        codes = {call.code() for call in calls}
    assert grpc.StatusCode.OK in codes
    assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}


@pytest.mark.usefixtures("time_limit")
def test_requests_without_a_deadline_wait_for_their_turn(model_base_path):
    with (
        Server("tiny", str(model_base_path), port=0, rest_api_port=0, grpc_max_threads=1) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        stub = PredictionServiceStub(channel)
        requests = [request_for("slow", rounds=[1000]) for _ in range(20)]
        for answer in [stub.Predict.future(request) for request in requests]:
            assert answer.result().outputs["left"].int_val[0] == 0
        page = server.metrics.page()
    assert b"queued_requests 0.0" in page and b"running_requests 0.0" in page


def test_requests_are_read_when_it_is_their_turn(model_base_path):
    """Reading takes memory and time, so a full server refuses before it reads."""
    with (
        Server(
            "tiny",
            str(model_base_path),
            port=0,
            rest_api_port=0,
            grpc_max_threads=1,
            max_queued_requests=0,
        ) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        slow = request_for("slow", rounds=[LONG])
        running = PredictionServiceStub(channel).Predict.future(slow, timeout=20)
        while b"running_requests 1.0" not in server.metrics.page():
            time.sleep(0.01)
        predict = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        for body in b"no message", request_for("", text=["a"]).SerializeToString():
            with pytest.raises(grpc.RpcError) as caught:
                predict(body, timeout=20)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        running.cancel()
        line = ':tensorflow:serving:request_count{model_name="tiny",status="RESOURCE_EXHAUSTED"} 1'
        assert line in server.metrics.page().decode()


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_requests(client, compression):
    request = request_for("", text=["abc" * 1000])
    response = client.prediction.Predict(request, timeout=30, compression=compression)
    assert list(response.outputs["num_tokens"].int_val) == [3000]


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_compressed_requests_grow_within_limits(compress):
    """16 KB of empty entries would be 16 MiB, and 1.4 GB once they are parsed."""
    entries = b"\x12\x00" * 2**18
    request = grpc_service._parsed(PredictRequest, compress(entries), 2**24)
    assert list(request.inputs) == [""]
    small = compress(b"\x12\x00" * 2**23)
    assert len(small) < 2**15
    for body, error in (
        (small, "Expected a PredictRequest of at most 1[0-9]{6} bytes"),
        (compress(entries)[:-9], "Expected a PredictRequest"),
        (b"\x1f\x8b" + entries, "Expected a PredictRequest"),
    ):
        with pytest.raises(ServingError, match=error):
            grpc_service._parsed(PredictRequest, body, 2**24)


def test_grpc_connections_that_are_too_many(model_base_path, free_port, monkeypatch):
    """They are closed, and REST goes on."""
    monkeypatch.setattr("serving.server.grpc_server._MOST_CONNECTIONS", 3)
    port = free_port()
    with Server("tiny", str(model_base_path), port=0, rest_api_port=port) as server:
        held = [socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(5)]
        assert [bool(each.recv(1)) for each in held] == [True] * 3 + [False] * 2
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models/tiny", timeout=30) as got:
            assert got.status == 200
        for each in held:
            each.close()
        deadline = time.monotonic() + 30
        while True:  # once the server has seen it
            assert time.monotonic() < deadline
            with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                with contextlib.suppress(grpc.RpcError):
                    assert num_tokens(channel) == [3]
                    break


def test_a_server_without_descriptors_waits_for_one(model_base_path, free_port, monkeypatch):
    """It does not try again and again, and then serves who has waited."""
    port, tried = free_port(), []
    accept = TCPServer.get_request

    def refuse(server):
        tried.append(time.monotonic())
        if time.monotonic() < tried[0] + 0.5:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(server)

    monkeypatch.setattr(TCPServer, "get_request", refuse)
    with Server("tiny", str(model_base_path), port=0, rest_api_port=port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models/tiny", timeout=30) as got:
            assert got.status == 200
    assert 2 <= len(tried) <= 10


HOSTS = [
    ("localhost", 200),
    ("LocalHost:8501", 200),
    ("app.localhost", 200),
    ("127.0.0.1:8501", 200),
    ("[::1]:8501", 200),
    ("example.com", 403),
    ("example.com:8501", 403),
    ("127.0.0.1.example.com", 403),
    ("localhost.example.com", 403),
    ("[::1].example.com", 403),
]


@pytest.mark.parametrize(("host", "status"), HOSTS)
def test_the_host_on_loopback(client, host, status):
    """A page elsewhere can give its name to this address, and then ask as if it were from here."""
    request = urllib.request.Request(f"{client.rest_url}/v1/models/tiny", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.status == status
    except urllib.error.HTTPError as error:
        assert error.code == status
        assert "Expected localhost or an IP address as the Host" in json.load(error)["error"]


@pytest.mark.parametrize("allowed", [True, False])
def test_pages_of_other_sites(model_base_path, free_port, allowed):
    """With the flag, a browser's rules of CORS allow them what TensorFlow Serving allows them."""
    port, origin = free_port(), {"Origin": "https://example.com"}
    flags = {"rest_api_enable_cors_support": True} if allowed else {}
    with Server("tiny", str(model_base_path), port=0, rest_api_port=port, **flags):

        def ask(method, path, headers):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request(method, path, b"{}" if method == "POST" else None, headers)
            response = connection.getresponse()
            response.read()
            found = {name: value for name, value in response.getheaders() if "-Allow-" in name}
            return response.status, found

        preflight = origin | {"Access-Control-Request-Method": "POST"}
        headers = {
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Allow-Headers": "Content-Type",
        }
        headers = headers if allowed else {}
        for method, path, sent, status in (
            ("OPTIONS", "/v1/models/tiny:predict", preflight, 200 if allowed else 501),
            ("OPTIONS", "/v1/models/tiny:predict", {}, 400 if allowed else 501),
            ("GET", "/v1/models/tiny", origin, 200),
            ("POST", "/v1/models/tiny:predict", origin, 400),  # errors can be read, too
        ):
            assert ask(method, path, sent) == (status, headers)
        assert ask("GET", "/v1/models/tiny", {"Host": "example.com"})[0] == 403


def test_connections_that_are_too_many(model_base_path, free_port, monkeypatch):
    monkeypatch.setattr("serving.server.rest_server._MAX_CONNECTIONS", 2)
    port = free_port()
    with Server("tiny", str(model_base_path), port=0, rest_api_port=port):
        held = [http.client.HTTPConnection("127.0.0.1", port, timeout=30) for _ in range(2)]
        for each in held:
            each.request("GET", "/v1/models/tiny")
            assert each.getresponse().read()
        one_more = socket.create_connection(("127.0.0.1", port), timeout=30)
        head, _, body = one_more.makefile("rb").read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert json.loads(body) == {"error": "The server has no connection left"}
        assert int(re.search(rb"Content-Length: (.*)", head)[1]) == len(body)
        for _ in range(20):  # also to who sends a request first
            one_more = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            one_more.request("POST", "/v1/models/tiny:predict", b"x" * 10_000)
            assert one_more.getresponse().status == 503
        held[0].close()
        deadline = time.monotonic() + 30
        while True:  # once the server has seen that one is closed
            assert time.monotonic() < deadline
            one_more = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            one_more.request("GET", "/v1/models/tiny")
            if one_more.getresponse().status == 200:
                break


def test_requests_that_are_too_long(client):
    for compression in None, grpc.Compression.Gzip:  # a thousandth of the length, until it is read
        with pytest.raises(grpc.RpcError) as caught:
            client.prediction.Predict(
                request_for("", text=["x" * 2**20]), timeout=30, compression=compression
            )
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    url = f"{client.rest_url}/v1/models/tiny:predict"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url, b" " * (2**20 + 1), timeout=30)
    assert caught.value.code == 400
    assert json.load(caught.value) == {
        "error": f"Expected a body of at most {2**20} bytes, not {2**20 + 1}"
    }


def test_batching_inside_the_graph(tmp_path):
    """Requests of different clients share a run, and a full queue refuses at once."""
    model = tf.Module()

    @tf.nondifferentiable_batch_function(
        num_batch_threads=1, max_batch_size=4, batch_timeout_micros=50_000, max_enqueued_batches=1
    )
    def rows(text):
        rounds = tf.while_loop(lambda n: n < 50_000, lambda n: [n + 1], [0])[0]
        return tf.ones_like(tf.strings.length(text)) * tf.shape(text)[0] + 0 * rounds

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def batched(text):
        return {"rows": rows(text)}

    tf.saved_model.save(model, str(tmp_path / "1"), signatures=batched)

    def ask(_):
        try:
            response = stub.Predict(request_for("", text=["a"]), timeout=60)
        except grpc.RpcError as error:
            return error.code()
        return response.outputs["rows"].int_val[0]

    with (
        Server("tiny", str(tmp_path), port=0, rest_api_port=0) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        ThreadPoolExecutor(24) as pool,
    ):
        stub = PredictionServiceStub(channel)
        answers = list(pool.map(ask, range(24)))
    assert 4 in answers
    assert set(answers) <= {1, 2, 3, 4, grpc.StatusCode.UNAVAILABLE}
    assert grpc.StatusCode.UNAVAILABLE in answers


def test_metrics(client):
    requests, latency = ":tensorflow:serving:request_count", ":tensorflow:serving:request_latency"
    ok = {"model_name": "tiny", "status": "OK"}
    over_grpc = {"model_name": "tiny", "API": "Predict", "entrypoint": "GRPC"}
    before = [metric(client, requests, **ok), metric(client, f"{latency}_count", **over_grpc)]
    client.prediction.Predict(request_for("", text=["abc"]), timeout=30)
    after = [metric(client, requests, **ok), metric(client, f"{latency}_count", **over_grpc)]
    assert after == [before[0] + 1, before[1] + 1]
    names = set(re.findall(r"^# TYPE (\S+ \S+)$", page(client), re.MULTILINE))
    assert {f"{requests} counter", f"{latency} histogram"} <= names
    assert ":tensorflow:serving:runtime_latency histogram" in names
    assert metric(client, "process_resident_memory_bytes") > 0


def test_metrics_are_of_what_tensorflow_serving_measures(client, error_of):
    """A dashboard for one fits the other: no latency of refusals, and examples are counted."""
    requests, latency = ":tensorflow:serving:request_count", ":tensorflow:serving:request_latency"
    examples = ":tensorflow:serving:request_example_count"

    def numbers():
        counts = [
            metric(client, requests, model_name="tiny", status=each)
            for each in ("OK", "INVALID_ARGUMENT")
        ]
        of_classify = {"model_name": "tiny", "API": "Classify", "entrypoint": "GRPC"}
        of_predict = {**of_classify, "API": "Predict"}
        counts += [metric(client, f"{latency}_count", **of) for of in (of_predict, of_classify)]
        counts += [metric(client, f"{examples}{end}", model="tiny") for end in ("s_count", "s_sum")]
        return counts

    before = numbers()
    error_of(client.prediction.Predict, request_for("", txt=["abc"]))
    spec = ModelSpec(name="tiny", signature_name="classify")
    request = ClassificationRequest(model_spec=spec)
    for _ in range(3):
        example = request.input.example_list.examples.add()
        example.features.feature["text"].bytes_list.value.append(b"a")
    client.prediction.Classify(request, timeout=30)
    request = GetModelMetadataRequest(model_spec=spec, metadata_field=["signature_def"])
    client.prediction.GetModelMetadata(request, timeout=30)
    assert [late - early for late, early in zip(numbers(), before)] == [1, 1, 0, 1, 1, 3]
    assert f"{examples}_total{{" in page(client)


def test_servers_of_one_process_count_apart(model_base_path):
    with Server("tiny", str(model_base_path), port=0, rest_api_port=0) as one:
        with Server("tiny", str(model_base_path), port=0, rest_api_port=0) as other:
            for server, count in ((one, 1), (other, 2)):
                with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                    for _ in range(count):
                        assert num_tokens(channel) == [3]
    line = ':tensorflow:serving:request_count{model_name="tiny",status="OK"} %.1f\n'
    run = ':tensorflow:serving:runtime_latency_count{API="Predict",model_name="tiny",runtime="TF1"}'
    for server, count in ((one, 1), (other, 2)):
        page = server.metrics.page().decode()
        assert line % count in page
        assert f"{run} {count}.0\n" in page
        assert "_created" not in page


def test_names_that_clients_make_up_are_not_counted(client, error_of):
    request = request_for("", text=["abc"])
    request.model_spec.name = "made-up"
    error_of(client.prediction.Predict, request)
    assert "made-up" not in page(client)


def test_metrics_only_where_they_are_enabled(tmp_path):
    file = tmp_path / "monitoring.config"
    file.write_text("prometheus_config { enable: true }")
    assert read_metrics_path(str(file)) == "/monitoring/prometheus/metrics"
    file.write_text("prometheus_config { path: '/x' }")
    assert not read_metrics_path(str(file))
    file.write_text("nonsense")
    with pytest.raises(
        ConfigError, match="Error parsing text-format tensorflow.serving.MonitoringConfig: 1:1: "
    ):
        read_metrics_path(str(file))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key and a certificate for localhost, as text."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    command += " -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout key -out cert"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return (folder / "key").read_text(), (folder / "cert").read_text()


def ssl_config(path, **fields):
    lines = [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    path.write_text("\n".join(lines))
    return str(path)


def test_tls(model_base_path, tmp_path, certificate):
    key, cert = certificate
    file = ssl_config(tmp_path / "ssl.config", server_key=key, server_cert=cert)
    with Server(
        "tiny", str(model_base_path), port=0, rest_api_port=0, ssl_config_file=file
    ) as server:
        target = f"localhost:{server.port}"
        with grpc.secure_channel(target, grpc.ssl_channel_credentials(cert.encode())) as channel:
            assert num_tokens(channel) == [3]
        with grpc.insecure_channel(target) as channel:
            with pytest.raises(grpc.RpcError):
                num_tokens(channel)


def test_tls_that_verifies_clients(model_base_path, tmp_path, certificate):
    key, cert = certificate
    fields = {"server_key": key, "server_cert": cert, "custom_ca": cert, "client_verify": True}
    file = ssl_config(tmp_path / "ssl.config", **fields)
    with Server(
        "tiny", str(model_base_path), port=0, rest_api_port=0, ssl_config_file=file
    ) as server:
        target = f"localhost:{server.port}"
        known = grpc.ssl_channel_credentials(cert.encode(), key.encode(), cert.encode())
        with grpc.secure_channel(target, known) as channel:
            assert num_tokens(channel) == [3]
        with grpc.secure_channel(target, grpc.ssl_channel_credentials(cert.encode())) as channel:
            with pytest.raises(grpc.RpcError):
                num_tokens(channel)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"server_key": "k"}, "Expected server_key and server_cert, both in PEM format"),
        (
            {"server_key": "k", "server_cert": "c", "client_verify": True},
            "Expected custom_ca in .*, to verify clients with",
        ),
        ({"server_kee": "k"}, 'no field named "server_kee"'),
    ],
)
def test_invalid_tls_files(tmp_path, fields, message):
    with pytest.raises(ConfigError, match=message):
        read_credentials(ssl_config(tmp_path / "ssl.config", **fields))

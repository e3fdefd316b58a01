"""Versions come and go in a running server, and no request fails because of it."""

import errno
import json
import shutil
import threading
import time
import urllib.request
from pathlib import Path

import grpc
import psutil
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest, ModelVersionStatus
from tensorflow_serving.apis.model_management_pb2 import ReloadConfigRequest
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.model_service_pb2_grpc import ModelServiceStub
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from serving.server import Server
from serving.server.errors import ServingError
from serving.server.inference import predict, warm_up
from serving.server.models.model_manager import ModelManager
from serving.server.models.servable import Servable
from serving.server.options import Options

WARMUP = "assets.extra/tf_serving_warmup_requests"


@pytest.fixture
def add(tmp_path, model_base_path):
    """A function that makes a version of the model under `tmp_path`."""

    def make(version, warmup=()):
        beside = tmp_path / f"{version}.new"
        shutil.copytree(model_base_path / "3", beside)
        (beside / "assets.extra").mkdir()
        with tf.io.TFRecordWriter(str(beside / WARMUP)) as writer:
            for request in warmup:
                log = PredictionLog()
                log.predict_log.request.CopyFrom(request)
                writer.write(log.SerializeToString())
        beside.rename(tmp_path / str(version))

    return make


def request_for(version=None, label=None, signature="", text="abc"):
    request = PredictRequest(model_spec=ModelSpec(name="tiny", signature_name=signature))
    if version:
        request.model_spec.version.value = version
    if label:
        request.model_spec.version_label = label
    request.inputs["text"].CopyFrom(tf.make_tensor_proto([text]))
    return request


def config(base, more=""):
    text = f"name: 'tiny' base_path: '{base}' model_platform: 'tensorflow' {more}"
    return text_format.Parse(f"model_config_list {{ config {{ {text} }} }}", ModelServerConfig())


def serving(base, more=""):
    models = ModelManager(prepare=warm_up)
    models.configure(config(base, more))
    return models


def served(models):
    return sorted(servable.version for servable in models)


def states(models):
    response = models.status(ModelSpec(name="tiny"))
    state = ModelVersionStatus.State
    return {each.version: state.Name(each.state) for each in response.model_version_status}


POLICIES = [
    ("", [12]),
    ("model_version_policy { latest {} }", [12]),
    ("model_version_policy { latest { num_versions: 2 } }", [5, 12]),
    ("model_version_policy { all {} }", [3, 5, 12]),
    ("model_version_policy { specific { versions: 3 versions: 5 versions: 99 } }", [3, 5]),
]


@pytest.mark.parametrize(("policy", "versions"), POLICIES)
def test_policies(tmp_path, add, policy, versions):
    for version in (3, 5, 12):
        add(version)
    models = serving(tmp_path, policy)
    assert served(models) == versions
    assert models.find(ModelSpec(name="tiny")).version == versions[-1]
    assert states(models) == dict.fromkeys(versions, "AVAILABLE")


def test_a_new_version_replaces_the_old_one(tmp_path, add):
    add(1)
    models = serving(tmp_path)
    add(2)
    models.poll()
    assert served(models) == [2]
    assert states(models) == {1: "END", 2: "AVAILABLE"}
    shutil.rmtree(tmp_path / "2")
    models.poll()
    assert states(models) == {1: "AVAILABLE", 2: "END"}


def test_a_missing_base_path_changes_nothing(tmp_path, add, caplog):
    add(1)
    models = serving(tmp_path)
    tmp_path.rename(tmp_path.with_name("gone"))
    for _ in range(3):
        models.poll()
    assert served(models) == [1]
    assert caplog.messages == [f"Base path {tmp_path} of model tiny is not a folder"]


@pytest.mark.parametrize("name", ["a\0b", "a" * 300, "a/" * 300, "1/saved_model.pb"])
def test_a_base_path_that_is_no_folder(tmp_path, add, name):
    """A client may ask for it, and the other models are loaded all the same."""
    add(1)
    models, asked = ModelManager(), config(tmp_path)
    more = asked.model_config_list.config.add(name="more", model_platform="tensorflow")
    more.base_path = f"{tmp_path}/{name}"
    with pytest.raises(ServingError, match="of model more is not a folder") as caught:
        models.configure(asked)
    assert caught.value.code is grpc.StatusCode.NOT_FOUND
    models.poll()
    assert served(models) == [1]


def test_a_refused_configuration_unloads_nothing(tmp_path, add):
    add(1)
    models = serving(tmp_path)
    (tmp_path / "2").mkdir()
    (tmp_path / "empty").mkdir()
    other = config(tmp_path / "gone")
    other.model_config_list.config[0].name = "other"
    specific = "model_version_policy { specific { versions: %d } }"
    for asked, error in [
        (config(tmp_path, specific % 99), "expected a folder named 99"),
        (config(tmp_path, specific % 2), "Cannot load version 2 of model tiny"),
        (config(tmp_path / "gone"), "is not a folder"),
        (config(tmp_path / "empty"), "named by a number"),
        (other, "of model other is not a folder"),
    ]:
        with pytest.raises(ServingError, match=error):
            models.configure(asked)
        models.poll()
        assert models.find(ModelSpec(name="tiny")).version == 1
        assert states(models)[1] == "AVAILABLE"
    add(99)
    models.configure(config(tmp_path, specific % 99))
    assert served(models) == [99]
    assert models.names() == ["tiny"]


def test_the_old_version_stays_beside_a_broken_one(tmp_path, add, caplog):
    add(1)
    models = serving(tmp_path)
    add(2)
    graph = tmp_path / "2" / "saved_model.pb"
    whole = graph.read_bytes()
    graph.write_bytes(whole[:1000])
    for _ in range(3):
        models.poll()
    assert served(models) == [1]
    assert states(models) == {1: "AVAILABLE", 2: "END"}
    [broken, _] = models.status(ModelSpec(name="tiny")).model_version_status
    assert broken.status.error_code
    assert broken.status.error_message.startswith("Cannot load version 2 of model tiny: ")
    assert caplog.messages == [broken.status.error_message]  # once, not at every poll

    graph.write_bytes(whole)  # as when a copy is still being made
    models.poll()
    assert served(models) == [2]


def test_warmup_comes_before_a_version_is_available(tmp_path, add):
    add(1, warmup=[request_for(signature="serving_default"), request_for(signature="echo")])
    models = serving(tmp_path)
    add(2, warmup=[request_for(), request_for(signature="nope")])
    models.poll()
    assert served(models) == [1]
    [broken, _] = models.status(ModelSpec(name="tiny")).model_version_status
    assert broken.status.error_message == (
        'Cannot load version 2 of model tiny: Serving signature key "nope" not found.'
    )


def test_a_damaged_warmup(tmp_path, add):
    add(1)
    (tmp_path / "1" / WARMUP).write_bytes(b"not a record")
    with pytest.raises(ServingError, match="tf_serving_warmup_requests"):
        serving(tmp_path)


LABELS = "model_version_policy { all {} } version_labels { key: 'stable' value: %d }"


def test_labels(tmp_path, add):
    add(1)
    add(2)
    with pytest.raises(ServingError, match="assign label to version 1 of model tiny, which is not"):
        serving(tmp_path, LABELS % 1)
    models = serving(tmp_path, "model_version_policy { all {} }")
    models.configure(config(tmp_path, LABELS % 1))
    assert models.find(ModelSpec(name="tiny", version_label="stable")).version == 1
    assert models.find(ModelSpec(name="tiny")).version == 2
    [status] = models.status(ModelSpec(name="tiny", version_label="stable")).model_version_status
    assert status.version == 1
    with pytest.raises(ServingError, match="^Unrecognized servable version label: canary$"):
        models.find(ModelSpec(name="tiny", version_label="canary"))


def test_a_base_path_that_cannot_be_read_now(tmp_path, add, monkeypatch):
    """The message has the real reason, and what is loaded goes on."""
    add(1)
    models = serving(tmp_path)

    def refuse(path):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(ServingError, match="Cannot read base path .*: Too many open files"):
        serving(tmp_path)
    models.poll()
    assert models.find(ModelSpec(name="tiny")).version == 1


def test_labels_of_versions_that_are_not_loaded_yet(tmp_path, add):
    add(1)
    models = ModelManager(Options(allow_version_labels_for_unavailable_models=True))
    models.configure(config(tmp_path, LABELS % 1))
    assert models.find(ModelSpec(name="tiny", version_label="stable")).version == 1
    # But a label that is in use must not lead to a version that does not answer.
    with pytest.raises(ServingError, match="assign label to version 2 of model tiny, which is not"):
        models.configure(config(tmp_path, LABELS % 2))


def test_reload_over_grpc(tmp_path, add, model_base_path):
    add(1)
    request = ReloadConfigRequest(config=config(tmp_path))
    more = request.config.model_config_list.config.add(name="more", model_platform="tensorflow")
    more.base_path = str(model_base_path)
    with (
        Server("tiny", str(model_base_path), port=0, rest_api_port=0) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        service = ModelServiceStub(channel)
        assert service.HandleReloadConfigRequest(request, timeout=60).status.error_code == 0
        assert sorted((each.name, each.version) for each in server.models) == [
            ("more", 3),
            ("tiny", 1),  # from another folder than before
        ]
        del request.config.model_config_list.config[0]
        service.HandleReloadConfigRequest(request, timeout=60)
        with pytest.raises(grpc.RpcError, match="Servable not found for request: Latest\\(tiny\\)"):
            PredictionServiceStub(channel).Predict(request_for(), timeout=60)
        status = GetModelStatusRequest(model_spec=ModelSpec(name="tiny"))
        response = service.GetModelStatus(status, timeout=60)
        assert {each.state for each in response.model_version_status} == {ModelVersionStatus.END}
        request.config.model_config_list.config.add(name="no", model_platform="tensorflow")
        request.config.model_config_list.config[1].base_path = str(tmp_path / "no")
        with pytest.raises(grpc.RpcError, match="Base path .*no of model no is not a folder"):
            service.HandleReloadConfigRequest(request, timeout=60)
        assert [each.name for each in server.models] == ["more"]


def test_the_configuration_file_is_read_again(tmp_path, add, caplog):
    add(1)
    add(2)
    file = tmp_path / "models.config"
    file.write_text(text_format.MessageToString(config(tmp_path)))
    with Server(
        model_config_file=str(file),
        model_config_file_poll_wait_seconds=0.05,
        port=0,
        rest_api_port=0,
    ) as server:
        assert served(server.models) == [2]
        file.write_text("model_config_list {")
        wait_until(lambda: caplog.messages)
        assert (
            "Error parsing text-format tensorflow.serving.ModelServerConfig: 1:19: " in caplog.text
        )
        assert served(server.models) == [2]
        file.write_text(
            text_format.MessageToString(config(tmp_path, "model_version_policy { all {} }"))
        )
        wait_until(lambda: served(server.models) == [1, 2])


def test_a_file_that_stays_the_same_tries_no_broken_version_again(tmp_path, add, caplog):
    add(1)
    file = tmp_path / "models.config"
    file.write_text(text_format.MessageToString(config(tmp_path)))
    with Server(
        model_config_file=str(file),
        model_config_file_poll_wait_seconds=0.01,
        file_system_poll_wait_seconds=0.05,
        port=0,
        rest_api_port=0,
    ) as server:
        (tmp_path / "2").mkdir()
        wait_until(lambda: caplog.messages)
        time.sleep(0.3)
        assert served(server.models) == [1]
    [message] = caplog.messages
    assert message.startswith("Cannot load version 2 of model tiny: ")


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_unloaded_versions_free_their_memory(model_base_path):
    memory = []
    for _ in range(40):
        servable = Servable("tiny", 3, model_base_path / "3")
        predict(servable, request_for())
        del servable
        memory.append(psutil.Process().memory_info().rss)
    assert memory[-1] - memory[10] < 2**24


def test_no_request_fails_while_versions_are_swapped(tmp_path, add, free_port):
    add(1)
    rest_api_port = free_port()
    url = f"http://127.0.0.1:{rest_api_port}/v1/models/tiny:predict"
    body = json.dumps({"instances": ["abc"]}).encode()
    seen, errors, stop = set(), [], threading.Event()

    def over_grpc(channel):
        while not stop.is_set():
            response = PredictionServiceStub(channel).Predict(request_for(), timeout=60)
            assert list(response.outputs["num_tokens"].int_val) == [3]
            seen.add(response.model_spec.version.value)

    def over_rest():
        while not stop.is_set():
            with urllib.request.urlopen(url, body, timeout=60) as response:
                [prediction] = json.load(response)["predictions"]
                assert prediction["num_tokens"] == 3

    def reporting(ask, *arguments):
        try:
            ask(*arguments)
        except Exception as error:
            errors.append(error)

    with (
        Server(
            "tiny",
            str(tmp_path),
            port=0,
            rest_api_port=rest_api_port,
            file_system_poll_wait_seconds=0.05,
        ) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        threads = [threading.Thread(target=reporting, args=(over_grpc, channel)) for _ in range(4)]
        threads += [threading.Thread(target=reporting, args=(over_rest,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for version in range(2, 7):
            wait_until(lambda: version - 1 in seen or errors)  # noqa: B023
            add(version)
            shutil.rmtree(tmp_path / str(version - 1))
        wait_until(lambda: 6 in seen or errors)
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert seen == set(range(1, 7))

"""The files in serving/deploy: a validator reads each; no container engine runs here."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import kubernetes_validate
import promql_parser
import pytest
import yaml
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from grafana_foundation_sdk.models.dashboard import Dashboard
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from serving import query
from serving.server import Server
from serving.server.__main__ import main
from serving.server.config_files import read_metrics_path, read_models
from serving.server.errors import ServingError
from serving.server.models.model_manager import ModelManager

DEPLOY = pathlib.Path(__file__).parents[2] / "serving" / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "docker-compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
KSERVE = yaml.safe_load((DEPLOY / "kserve.yaml").read_text())
METRICS_PATH = "/monitoring/prometheus/metrics"


def of_kind(kind):
    [found] = [each for each in KUBERNETES if each["kind"] == kind]
    return found


def container():
    [found] = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    return found


def check_compose(path):
    command = [sys.executable, "-m", "check_jsonschema"]
    command += ["--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_compose_fits_the_schema(tmp_path):
    checked = check_compose(DEPLOY / "docker-compose.yaml")
    assert checked.returncode == 0, checked.stdout
    broken = tmp_path / "docker-compose.yaml"
    broken.write_text(yaml.safe_dump({**COMPOSE, "services": {"serving": {"imag": "x"}}}))
    assert check_compose(broken).returncode == 1


def test_compose_mounts_existing_files():
    for service in COMPOSE["services"].values():
        for volume in service["volumes"]:
            source = volume.rsplit(":", 2)[0]
            if source.startswith("./"):
                assert (DEPLOY / source).is_file()
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_the_health_check_of_compose(client):
    *shell, script = COMPOSE["services"]["serving"]["healthcheck"]["test"][1:]
    port = client.rest_url.rpartition(":")[2]
    script = script.replace("8501", port)
    for model, status in [("tiny", 0), ("other", 1)]:
        command = [*shell, script.replace("models/sst2", f"models/{model}")]
        assert subprocess.run(command, timeout=60).returncode == status


@pytest.mark.parametrize(
    "arguments", [COMPOSE["services"]["serving"]["command"], container()["args"]]
)
def test_flags_are_known(arguments):
    values, more = main.parse(arguments)
    assert {argument.partition("=")[0].removeprefix("--") for argument in arguments} <= set(values)
    assert more == []


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_kubernetes_fits_the_schemas(version):
    for resource in KUBERNETES:
        kubernetes_validate.validate(resource, version, strict=True)


def test_kubernetes_probes_limits_and_names():
    found = container()
    models = json.dumps(of_kind("ConfigMap")["data"])
    assert "/models/sst2" in models
    assert set(found["resources"]) == {"requests", "limits"}
    assert found["image"] == COMPOSE["services"]["serving"]["image"]
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert of_kind("Service")["spec"]["selector"] == labels
    assert of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    ports = {port["name"] for port in found["ports"]}
    assert {port["targetPort"] for port in of_kind("Service")["spec"]["ports"]} == ports
    claim = of_kind("PersistentVolumeClaim")["metadata"]["name"]
    volumes = of_kind("Deployment")["spec"]["template"]["spec"]["volumes"]
    assert claim in [v.get("persistentVolumeClaim", {}).get("claimName") for v in volumes]


def test_probes_fail_without_a_model(model_base_path, tmp_path, free_port):
    """The status of a model that was unloaded is 200, here and in TensorFlow Serving."""
    shutil.copytree(model_base_path / "3", tmp_path / "3")
    probes = [container()["startupProbe"], container()["readinessProbe"]]
    probes.append(KSERVE["spec"]["predictor"]["model"]["readinessProbe"])
    paths = {probe["httpGet"]["path"] for probe in probes}
    port = free_port()

    def status(path):
        url = f"http://127.0.0.1:{port}{path.replace('/sst2', '/tiny')}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    with Server("tiny", str(tmp_path), port=0, rest_api_port=port) as server:
        assert {status(path) for path in paths} == {200}
        shutil.rmtree(tmp_path / "3")
        server.models.poll()
        assert {status(path) for path in paths} == {404}
        assert status("/v1/models/sst2") == 200


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_kserve_s_model_is_a_container_and_what_kserve_adds(version):
    """KServe's own schema is in no package index; Kubernetes's, which it builds on, is."""
    assert (KSERVE["apiVersion"], KSERVE["kind"]) == (
        "serving.kserve.io/v1beta1",
        "InferenceService",
    )
    predictor = dict(KSERVE["spec"]["predictor"])
    model = dict(predictor.pop("model"))
    assert set(predictor) <= {"minReplicas", "maxReplicas", "scaleMetric", "scaleTarget"}
    assert model.pop("modelFormat") == {"name": "tensorflow"}
    assert model.pop("protocolVersion") == "v1"
    assert container()["image"].endswith(f":{model.pop('runtimeVersion')}")
    assert model.pop("storageUri").startswith("pvc://models/")
    assert {"resources", "readinessProbe"} <= set(model)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": KSERVE["metadata"],
        "spec": {"containers": [{"name": "kserve-container", "image": "x", **model}]},
    }
    kubernetes_validate.validate(pod, version, strict=True)


# --- TensorFlow Serving's own configuration ---


def read_batching_parameters(text):
    """Reads a BatchingParameters, with those of its fields that the files have.

    tensorflow-serving-api leaves its descriptor out.
    """
    wrappers = wrappers_pb2.DESCRIPTOR
    file = descriptor_pb2.FileDescriptorProto(
        name="batching.proto", syntax="proto3", dependency=[wrappers.name]
    )
    message = file.message_type.add(name="BatchingParameters")
    names = "max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads"
    for number, name in enumerate(names, 1):
        message.field.add(
            name=name, number=number, type="TYPE_MESSAGE", type_name=".google.protobuf.Int64Value"
        )
    message.field.add(name="pad_variable_length_inputs", number=7, type="TYPE_BOOL")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName("BatchingParameters")
    return text_format.Parse(text, message_factory.GetMessageClass(descriptor)())


def test_text_protos(tmp_path):
    [model] = read_models(str(DEPLOY / "models.config")).model_config_list.config
    assert (model.name, model.base_path) == ("sst2", "/models/sst2")
    assert read_metrics_path(str(DEPLOY / "monitoring.config")) == METRICS_PATH
    parameters = read_batching_parameters((DEPLOY / "batching.config").read_text())
    assert parameters.max_batch_size.value == 32
    assert not parameters.pad_variable_length_inputs

    data = of_kind("ConfigMap")["data"]
    [model] = text_format.Parse(data["models.config"], ModelServerConfig()).model_config_list.config
    assert (model.name, model.base_path) == ("sst2", "/models/sst2")
    (tmp_path / "monitoring.config").write_text(data["monitoring.config"])
    assert read_metrics_path(str(tmp_path / "monitoring.config")) == METRICS_PATH
    assert read_batching_parameters(data["batching.config"]).max_batch_size.value == 32


def test_two_models_with_labels(model_base_path, tmp_path, free_port, capsys):
    """The file runs, under other folders; clients choose by label and by version."""
    for path in ("sst2/1", "sst2/2", "mnli/1"):
        shutil.copytree(model_base_path / "3", tmp_path / path)
    text = (DEPLOY / "labels.config").read_text()
    file = tmp_path / "labels.config"
    file.write_text(text.replace("/models/", f"{tmp_path}/"))
    [flag] = re.findall("--(allow_version_labels[a-z_]*)=true", text)
    with pytest.raises(ServingError, match="not currently available for inference"):
        ModelManager().configure(read_models(str(file)))
    ports = {"port": 0, "rest_api_port": free_port()}
    with Server(model_config_file=str(file), **ports, **{flag: True}) as server:
        labels = {"stable": 1, "canary": 2}
        for label, version in labels.items():
            spec = ModelSpec(name="sst2", version_label=label)
            assert server.models.find(spec).version == version
        for target in (f"localhost:{server.port}", f"http://localhost:{ports['rest_api_port']}"):
            for model, *choice in (
                *(["sst2", f"--label={label}"] for label in labels),
                *(["sst2", f"--version={version}"] for version in labels.values()),
                ["sst2"],
                ["mnli"],
            ):
                assert query.main([f"--target={target}", f"--model={model}", *choice, "ab"]) == 0
                assert capsys.readouterr().out.splitlines()[1] == "negative  0.8000  ab"
            for choice in ("--label=old", "--version=3"):
                assert query.main([f"--target={target}", "--model=sst2", choice, "ab"]) == 1
                assert choice.partition("=")[2] in capsys.readouterr().err


# --- metrics ---


def expressions():
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
    dashboard = json.loads((DEPLOY / "grafana" / "serving.json").read_text())
    found = [rule["expr"] for rule in rules]
    found += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [each.replace("$__rate_interval", "1m").replace("$model", ".*") for each in found]


@pytest.mark.parametrize("expression", expressions())
def test_expressions_are_promql_on_metrics_that_exist(client, expression):
    promql_parser.parse(expression)
    with urllib.request.urlopen(f"{client.rest_url}/metrics", timeout=30) as response:
        names = set(re.findall(r"^# TYPE (\S+)", response.read().decode(), re.MULTILINE))
    for name in re.findall(r":tensorflow:\w+:\w+", expression):
        assert name.removesuffix("_bucket") in names


def test_prometheus_reads_the_page_where_it_is():
    config = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
    [job] = config["scrape_configs"]
    assert job["metrics_path"] == METRICS_PATH
    assert job["static_configs"][0]["targets"] == ["serving:8501"]
    annotations = of_kind("Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] == METRICS_PATH


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
@pytest.mark.parametrize("check", [["config", "prometheus.yaml"], ["rules", "alerts.yaml"]])
def test_promtool(check):
    subprocess.run(["promtool", "check", *check], cwd=DEPLOY, check=True, timeout=60)


def test_grafana():
    folder = DEPLOY / "grafana"
    dashboard = Dashboard.from_json(json.loads((folder / "serving.json").read_text()))
    [datasource] = yaml.safe_load((folder / "datasource.yaml").read_text())["datasources"]
    assert len(dashboard.panels) == 4
    assert {panel.datasource.uid for panel in dashboard.panels} == {datasource["uid"]}
    [provider] = yaml.safe_load((folder / "dashboards.yaml").read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in COMPOSE["services"]["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/serving.json" in mounted

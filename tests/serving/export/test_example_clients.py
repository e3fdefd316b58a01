"""The clients of examples/clients for pairs, choices and generation, and the README's command,
against exports of such models.
"""

import json
import pathlib
import re
import runpy
import shutil
import subprocess
import sys

import pytest

from serving.server import Server

pytestmark = pytest.mark.slow  # three exports are made, loaded and warmed up

CLIENTS = pathlib.Path(__file__).parents[3] / "examples" / "clients"
MODEL = 'config {{ name: "{}" base_path: "{}" model_platform: "tensorflow" }}'


@pytest.fixture(scope="module")
def paths(path_of, exported_classifier, tmp_path_factory):
    """The exports by their models' names."""
    found = {"race": path_of("chooser"), "books": path_of("lm")}
    pairs = tmp_path_factory.mktemp("pairs") / "mnli"
    shutil.copytree(exported_classifier("pair").path, pairs / "1")
    return {**found, "mnli": pairs / "1"}


@pytest.fixture(scope="module")
def ports(paths, tmp_path_factory, free_port):
    """The gRPC and the REST port of a server of all of them."""
    models = " ".join(MODEL.format(name, path.parent) for name, path in paths.items())
    config = tmp_path_factory.mktemp("config") / "models.config"
    config.write_text(f"model_config_list {{ {models} }}")
    rest_port = free_port()
    with Server(model_config_file=str(config), port=0, rest_api_port=rest_port) as server:
        yield server.port, rest_port


@pytest.fixture
def run_python(ports, monkeypatch, capsys):
    def run(name, *arguments):
        script = str(CLIENTS / name)
        monkeypatch.setattr(sys, "argv", [script, f"localhost:{ports[0]}", *arguments])
        runpy.run_path(script)
        return capsys.readouterr().out.splitlines()

    return run


def test_pairs_over_grpc(run_python):
    first, second = run_python("ask_pairs_grpc.py", "mnli", "It rains.", "It is wet.", "a", "b")
    label, score, *texts = first.split("  ")
    assert label in ("negative", "neutral", "positive") and 1 / 3 < float(score) <= 1
    assert texts == ["It rains.", "It is wet."] and second.endswith("  a  b")


def test_choices_over_grpc(run_python):
    lines = run_python("ask_choices_grpc.py", "race", "a film", "a", "good", "dull", "kind")
    marks, scores, texts = zip(*((line[:2], *line[4:].split("  ")) for line in lines))
    assert texts == ("good", "dull", "kind")
    assert marks.index("->") == max(range(3), key=lambda index: float(scores[index]))


def test_generation_over_grpc(run_python):
    first, second = run_python("generate_grpc.py", "books", "a good film", "the staff")
    assert first.startswith("a good film") and second.startswith("the staff")


@pytest.mark.parametrize(
    ("model", "task", "outputs"),
    [("mnli", "pairs", "label"), ("race", "choices", "choice"), ("books", "generate", "text")],
)
def test_curl(ports, model, task, outputs):
    command = ["sh", CLIENTS / "ask_rest.sh", f"http://localhost:{ports[1]}", model, task]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stdout + process.stderr
    status, answer = map(json.loads, process.stdout.splitlines())
    assert status["model_version_status"][0]["state"] == "AVAILABLE"
    assert outputs in (answer.get("outputs") or answer["predictions"][0])


@pytest.mark.parametrize(("model", "count"), [("mnli", 1), ("race", 1), ("books", 2)])
def test_the_commands_in_an_exports_readme_run(paths, ports, model, count):
    readme = (paths[model] / "assets.extra" / "README.md").read_text()
    commands = re.findall("^curl .*$", readme, re.MULTILINE)
    assert len(commands) == count
    for command in commands:
        command = command.replace("localhost:8501", f"localhost:{ports[1]}")
        command = re.sub(r"/models/[^/:]+:", f"/models/{model}:", command)
        process = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
        [answer] = json.loads(process.stdout)["predictions"]
        if model == "mnli":  # each number has its name
            assert "`classes` names the numbers in `scores`" in readme
            assert (
                dict(zip(answer["classes"], answer["scores"]))[answer["label"]] == answer["score"]
            )

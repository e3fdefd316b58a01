"""The client examples run without our packages against a running server."""

import json
import pathlib
import runpy
import shutil
import subprocess
import sys

import pytest

CLIENTS = pathlib.Path(__file__).parents[3] / "examples" / "clients"
ANSWER = "negative  0.8000  ab\npositive  0.7000  abcdefg\n"


def run(program, *arguments):
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    command = [path, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_python(client, monkeypatch, capsys):
    script = str(CLIENTS / "ask_grpc.py")
    monkeypatch.setattr(sys, "argv", [script, client.target, "tiny", "ab", "abcdefg"])
    runpy.run_path(script)
    assert capsys.readouterr().out == ANSWER


@pytest.mark.parametrize("script", sorted(CLIENTS.glob("*_grpc.py")), ids=lambda path: path.name)
def test_grpc_clients_take_long_replies(script):
    assert '("grpc.max_receive_message_length", -1)' in script.read_text()


def test_curl(client):
    process = run("sh", CLIENTS / "ask_rest.sh", client.rest_url, "tiny")
    assert process.returncode == 0, process.stderr
    status, predicted, classified = map(json.loads, process.stdout.splitlines())
    assert status["model_version_status"][0]["state"] == "AVAILABLE"
    assert [row["num_tokens"] for row in predicted["predictions"]] == [14, 15]
    assert classified == {"results": [[["negative", 0.6], ["positive", 0.4]]]}
    failed = run("sh", CLIENTS / "ask_rest.sh", client.rest_url, "other")
    assert failed.returncode
    assert json.loads(failed.stdout) == {"error": "Could not find any versions of model other"}


def test_node(client):
    process = run("node", CLIENTS / "ask_rest.mjs", client.rest_url, "tiny", "ab", "abcdefg")
    assert (process.returncode, process.stdout) == (0, ANSWER), process.stderr
    failed = run("node", CLIENTS / "ask_rest.mjs", client.rest_url, "other", "ab")
    assert failed.returncode == 1
    assert failed.stderr == "HTTP 404: Servable not found for request: Latest(other)\n"

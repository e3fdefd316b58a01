"""docs/scale.md has the program's table, commands that parse, and a valid job."""

import json
import pathlib
import subprocess

import kubernetes_validate
import pytest
import yaml

import gpt1_keras
from benchmarks.scale import PARAMETERS, Machines, estimate
from tests.helpers.commands import commands_of, parse

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs/scale.md"
JOB = ROOT / "training/deploy/pretrain-job.yaml"
TOKENS = 10**11


@pytest.mark.slow
def test_the_table():
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("|")
    ]
    assert rows[2:] == estimate(Machines(), TOKENS)
    assert gpt1_keras.GPT1Backbone(40481).count_params() == PARAMETERS


def test_the_time_of_an_update_by_hand():
    """85.0 and 31.1 million weights, 64 windows of 512 tokens, on one GPU that sends nothing."""
    flops = 64 * 512 * (6 * (85_054_464 + 40_481 * 768) + 12 * 12 * 768 * 512)
    assert Machines().step_seconds(1, 64) == pytest.approx(flops / (0.4 * 989e12), rel=1e-3)
    # Two: half the work, and each passes all gradients on once.
    seconds = flops / 2 / (0.4 * 989e12) + 4 * 116_537_088 / 300e9
    assert Machines().step_seconds(2, 64) == pytest.approx(seconds, rel=1e-3)


def test_the_commands():
    commands = [parse(command) for command in commands_of(PAGE)]
    assert len(commands) == 3
    for arguments in commands[1:]:
        assert arguments["steps"] == -(-TOKENS // (arguments["batch_size"] * 512))


@pytest.fixture
def job():
    service, job = yaml.safe_load_all(JOB.read_text())
    return service, job


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_the_job_fits_the_schemas_of_kubernetes(version, job):
    for resource in job:
        kubernetes_validate.validate(resource, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**job[1], "spec": {"template": 1}}, version, strict=True)


def test_the_job_s_workers_find_each_other_and_run_a_command_that_parses(job):
    service, job = job
    name, spec = job["metadata"]["name"], job["spec"]
    template = spec["template"]["spec"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert template["subdomain"] == service["metadata"]["name"]
    assert spec["completions"] == spec["parallelism"] == 8
    (container,) = template["containers"]
    script, command = container["args"][0].split("exec ")
    assert container["command"] == ["/bin/sh", "-ec"]
    printed = subprocess.run(
        ["/bin/sh", "-ec", script + 'printf "%s" "$TF_CONFIG"'],
        env={"JOB_COMPLETION_INDEX": "3", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    port = container["ports"][0]["containerPort"]
    assert json.loads(printed) == {
        "cluster": {"worker": [f"{name}-{i}.{template['subdomain']}:{port}" for i in range(8)]},
        "task": {"type": "worker", "index": 3},
    }
    arguments = parse(command.replace("\\\n", ""))
    assert arguments["strategy"] == "multi_worker"
    assert arguments["steps"] == -(-TOKENS // (arguments["batch_size"] * 512))
    claims = [volume.get("persistentVolumeClaim") for volume in template["volumes"]]
    assert {"claimName": "gpt1-data"} in claims

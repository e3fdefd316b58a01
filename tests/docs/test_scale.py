"""docs/scale.md has the run's updates, and the job beside it is valid."""

import json
import pathlib
import subprocess

import kubernetes_validate
import pytest
import yaml

from tests.helpers.commands import commands_of, parse

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs/scale.md"
JOB = ROOT / "training/deploy/pretrain-job.yaml"
TOKENS = 10**11


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

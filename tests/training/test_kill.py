"""Killed processes go on as if nothing had happened, bit for bit."""

import json
import os
import random
import signal
import time

import numpy as np
import pytest

from gpt1_keras import GPT1CausalLM
from gpt1_keras.presets.configurations import CONFIGURATIONS
from tests.helpers import forked
from training.pretrain import main

STEPS, EVERY = 28, 2  # of the run, and of its checkpoints
# With dropout, so that the state of the random numbers counts too.
COMMAND = [
    "--config", "gpt1_micro", "--steps", STEPS, "--batch-size", 4, "--sequence-length", 32,
    "--warmup-steps", 5, "--learning-rate", 3e-3, "--checkpoint-every", EVERY, "--deterministic",
]  # fmt: skip


def run(arguments, fault):
    """What a process does; `fault` is called first."""
    CONFIGURATIONS["gpt1_micro"]["num_layers"] = 1  # as most of a run is tracing it
    if fault:
        fault()
    raise SystemExit(main([str(argument) for argument in arguments]))


@pytest.fixture(scope="module")
def make_process(corpus):
    """Starts the program, which writes into `folder`, and into a log beside it."""

    def make_process(folder, fault=None, environment=None, *more):
        arguments = ["--corpus", corpus, "--output", folder, *COMMAND, *more]
        return forked.start(run, arguments, fault, log=f"{folder}.log", environment=environment)

    return make_process


@pytest.fixture
def start(make_process, tmp_path):
    """The same, by the folder's name; none outlives its test."""
    processes = []

    def start(name, *arguments):
        processes.append(make_process(tmp_path / name, *arguments))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.join()


@pytest.fixture
def finish(start, tmp_path):
    def finish(name):
        process = start(name)
        process.join(300)
        assert process.exitcode == 0, (tmp_path / f"{name}.log").read_text()

    return finish


@pytest.fixture(scope="module")
def whole(make_process, tmp_path_factory):
    """The folder of a run that nobody killed."""
    folder = tmp_path_factory.mktemp("kill") / "whole"
    process = make_process(folder)
    process.join(300)
    assert process.exitcode == 0, folder.with_suffix(".log").read_text()
    return folder


def assert_same_run(found, expected, every=EVERY):
    """The same losses, and the same weights, bit for bit."""
    curves = []
    for folder in (found, expected):
        entries = json.loads((folder / "history.json").read_text())
        names = ("step", "loss", "validation_loss", "validation_perplexity")
        curves.append([[entry[name] for name in names] for entry in entries])
    assert curves[0] == curves[1]
    assert [entry[0] for entry in curves[0]] == list(range(every, STEPS + 1, every))
    models = [GPT1CausalLM.from_preset(str(folder / "preset")) for folder in (found, expected)]
    for ours, theirs in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    names = sorted(path.name for path in expected.iterdir())
    assert sorted(path.name for path in found.iterdir()) == names


def newest(folder):
    steps = [int(path.stem[5:]) for path in (folder / "checkpoints").glob("step-*.npz")]
    return max(steps, default=0)


@pytest.mark.slow
def test_killed_at_random_moments(whole, start, finish, tmp_path):
    """While it starts, or around its first checkpoints: six times, whatever the machine's speed."""
    moments = random.Random(0)
    for end in (0, EVERY, 2 * EVERY, 0, 2 * EVERY, EVERY):
        process = start("killed")
        before = newest(tmp_path / "killed")
        while process.is_alive() and newest(tmp_path / "killed") < before + end:
            time.sleep(0.005)
        # It has no more than one checkpoint's time, so that steps are left for the kills to come.
        last = time.monotonic() + moments.uniform(0.0, 0.4 if end else 4.0)
        while time.monotonic() < last and newest(tmp_path / "killed") <= before + end:
            time.sleep(0.005)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, (tmp_path / "killed.log").read_text()
        assert newest(tmp_path / "killed") >= before
    finish("killed")
    assert_same_run(tmp_path / "killed", whole)


class KillWhileSaving:
    """Writes a part of a file, and dies."""

    def __init__(self, count, share):
        self.count, self.share = count, share

    def __call__(self):
        save = np.savez

        def savez(path, *arrays, **named):
            save(path, *arrays, **named)
            self.count -= 1
            if self.count == 0:
                os.truncate(path, int(self.share * os.path.getsize(path)))
                os.kill(os.getpid(), signal.SIGKILL)

        np.savez = savez


class KillBefore:
    """Dies right before the count-th time that a file gets its name."""

    def __init__(self, count):
        self.count = count

    def __call__(self):
        replace = os.replace

        def replace_or_die(source, target):
            self.count -= 1
            if self.count == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)

        os.replace = replace_or_die


@pytest.mark.slow
def test_killed_while_it_writes(whole, start, finish, tmp_path):
    """A checkpoint cut short, a history without its checkpoint, a preset not yet in place."""
    faults = [
        KillBefore(1),  # the options
        KillWhileSaving(1, 0.0),
        KillWhileSaving(2, 0.5),
        *(KillBefore(count) for count in (2, 3, 4)),  # history, checkpoint, history
    ]
    for fault in faults:
        process = start("cut", fault)
        process.join(300)
        assert process.exitcode == -signal.SIGKILL, (tmp_path / "cut.log").read_text()
    finish("cut")
    assert_same_run(tmp_path / "cut", whole)


@pytest.mark.slow
def test_killed_at_the_end(whole, start, finish, tmp_path):
    """When the model is trained, but the preset or the result is not there."""
    names = 2 * STEPS // EVERY  # a history and a checkpoint each; before them the options
    for count in (names + 3, 4):  # after the plot of the use of the context
        process = start("end", KillBefore(count))
        process.join(300)
        assert process.exitcode == -signal.SIGKILL, (tmp_path / "end.log").read_text()
    finish("end")
    assert_same_run(tmp_path / "end", whole)


def cluster(index, ports):
    workers = [f"localhost:{port}" for port in ports]
    task = {"type": "worker", "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})}


@pytest.mark.slow
def test_a_killed_worker(start, free_ports, tmp_path):
    """The one that writes dies, and both are started again."""

    def start_both(name):
        ports = free_ports(2)
        more = ("--strategy", "multi_worker", "--checkpoint-every", STEPS // 4)
        return [start(name, None, cluster(index, ports), *more) for index in range(2)]

    def finish_both(name):
        for process in start_both(name):
            process.join(300)
            assert process.exitcode == 0, (tmp_path / f"{name}.log").read_text()

    finish_both("whole")
    workers = start_both("killed")
    while newest(tmp_path / "killed") < STEPS // 2:
        time.sleep(0.01)
        assert all(worker.exitcode in (None, 0) for worker in workers)
    workers[0].kill()
    time.sleep(0.5)
    workers[1].kill()  # it waits for the other, and the scheduler ends it
    for worker in workers:
        worker.join()
    finish_both("killed")
    assert_same_run(tmp_path / "killed", tmp_path / "whole", STEPS // 4)

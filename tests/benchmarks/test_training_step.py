"""The benchmarks run, and compare like with like."""

import pathlib
import sys

import numpy as np
import pytest

from benchmarks import training_step
from benchmarks.harness.turns import Worker, alternate, speedup
from benchmarks.training_step import PEERS, _rows
from training.evaluation.throughput import flops_per_token

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a benchmark at the smallest size in this process; returns what it prints."""
    monkeypatch.chdir(ROOT)  # where it starts processes that import `benchmarks`

    def run(module, *arguments):
        monkeypatch.setattr(sys, "argv", [module.__name__, "--size", "micro", *arguments])
        module.main()
        return capsys.readouterr().out

    return run


def rows_of(report):
    """The cells of the lines of all tables."""
    lines = [line for line in report.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.slow
def test_the_table_of_the_training_step(run):
    names = ["ours-float32-graph", "keras_hub-float32-graph"]
    report = run(training_step, "--only", *names, "--batches", "2x32", "--steps", "2")
    rows = [row for row in rows_of(report) if row[0] == "2 x 32"]
    assert [row[:3] for row in rows] == [
        ["2 x 32", "float32", "gpt1_keras, graph"],
        ["2 x 32", "float32", "KerasHub GPT-2, graph"],
    ]
    for row in rows:
        assert float(row[3]) * float(row[4].replace(",", "")) == pytest.approx(64, rel=0.02)
        assert 0 < float(row[5].rstrip("%")) < 100
        assert 0 < float(row[7])


def test_figures_of_two_peers():
    seconds = [[1.0, 2.0, 4.0], [1.5, 8.0, 6.0]]  # ratios 1.5, 4 and 1.5
    peers = (PEERS["ours-float32-graph"], PEERS["keras_hub-float32-graph"])
    # At the speed of the product, 5, 20 and 20 GFLOP fit our steps; 7.5, 80 and 30 theirs.
    size = {"num_layers": 1, "hidden_dim": 64, "intermediate_dim": 256, "vocabulary_size": 10**7}
    gigaflops = 1e-9 * 64 * flops_per_token(size, 32)
    ours, other = _rows((2, 32), peers, seconds, [5.0, 10.0, 5.0], [3e9, 4e9], size)
    assert ours[5:] == [f"{gigaflops / 20:.0%}", "5", "3.00", ""]
    assert other[5:] == [f"{gigaflops / 30:.0%}", "5", "4.00", "1.50"]


@pytest.mark.slow
def test_peers_train_the_same():
    """Untrained models of 1,000 tokens, whatever they are made of."""
    setting = {"precision": "float32", "size": "micro", "batch": 2, "length": 32, "steps": 2}
    for module, mode in (("hugging_face", None), ("keras_hub", "graph")):
        with Worker(f"peers.{module}:train", mode=mode, **setting) as worker:
            losses = [worker.turn()["loss"] for _ in range(2)]
            summary = worker.summary()
        assert np.mean(losses) == pytest.approx(np.log(1000), rel=0.05)
        assert summary["peak_memory"] > 0


def test_a_worker_that_dies_says_why():
    with Worker("harness.matrix_product:multiply", nothing=1) as worker:
        with pytest.raises(RuntimeError, match="(?s)exit status 1.*argument 'nothing'"):
            worker.turn()


def test_a_worker_takes_another_commit_s_package(tmp_path):
    package = tmp_path / "gpt1_keras"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('of the other commit')")
    arguments = {"precision": "float32", "mode": "graph", "size": "micro"}
    arguments |= {"batch": 1, "length": 8, "steps": 1}
    with Worker("peers.ours:train", checkout=str(tmp_path), **arguments) as worker:
        with pytest.raises(RuntimeError, match="of the other commit"):
            worker.turn()


def test_turns_alternate_and_the_warm_up_is_left_out():
    calls = []
    turns = {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"}
    assert alternate(turns, rounds=2, warmup=1) == {"a": [3, 5], "b": [4, 6]}
    assert "".join(calls) == "ababab"


def test_a_speedup_is_of_neighbouring_turns():
    assert speedup([1.0, 2.0, 4.0], [1.5, 8.0, 6.0]) == 1.5


def test_an_unknown_peer(run, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(training_step, "--only", "ours")
    assert stopped.value.code == 2
    assert "invalid choice: 'ours' (choose from" in capsys.readouterr().err

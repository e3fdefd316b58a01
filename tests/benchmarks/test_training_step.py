"""The benchmarks run, and compare like with like."""

import pathlib
import re
import sys

import numpy as np
import pytest

import gpt1_keras
from benchmarks import generation, training_step
from benchmarks.common.setting import SIZES
from benchmarks.common.turns import Worker
from benchmarks.peers.plain_gpt1 import plain_gpt1
from benchmarks.training_step import Duel
from gpt1_keras.convert.weights import block_variables
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
def test_tables_of_the_training_step(run, tmp_path):
    report = tmp_path / "report.md"
    names = ["ours_graph", "plain_graph"]
    arguments = ["--only", ",".join(names), "--batches", "2x32", "--steps", "2"]
    printed = run(training_step, *arguments, "--output", str(report))
    assert report.read_text() in printed

    rows = [row for row in rows_of(report.read_text()) if row[0] == "2 x 32"]
    assert [row[:3] for row in rows] == [
        ["2 x 32", "float32", "gpt1_keras, graph"],
        ["2 x 32", "float32", "plain Keras, graph"],
        ["2 x 32", "float32", "gpt1_keras, graph / plain Keras, graph"],
    ]
    ours, plain, ratios = rows
    for row in ours, plain:
        assert float(row[3]) * float(row[4].replace(",", "")) == pytest.approx(64, rel=0.02)
        assert 0 < float(row[5].rstrip("%")) < 100
    expected = float(ours[6]) / float(plain[6])
    assert float(ratios[4].rstrip("%")) == pytest.approx(100 * expected, abs=2)


def test_a_duel_s_figures():
    summaries = ({"peak_memory": 3e9, "import_memory": 1e9},) * 2
    seconds = ([1.0, 2.0, 4.0], [1.5, 8.0, 6.0])  # ratios 1.5, 4 and 1.5
    duel = Duel(2, 32, ("ours_graph", "plain_graph"), seconds, [5.0, 10.0, 5.0], summaries)
    assert duel.speedup() == 1.5
    gigaflops = 1e-9 * 64 * flops_per_token(SIZES["micro"], 32)
    # At the speed of the product, 5, 20 and 20 GFLOP fit our steps; 7.5, 80 and 30 theirs.
    assert duel.shares(SIZES["micro"]) == pytest.approx((gigaflops / 20, gigaflops / 30))


@pytest.mark.slow
def test_competitors_train_the_same():
    """Untrained models of 1,000 tokens, whatever they are made of."""
    for name in ("hugging_face", "keras_hub_graph"):
        arguments = ["--size", "micro", "--batch", 2, "--length", 32, "--steps", 2]
        worker = Worker("peers.training_step", name, *arguments)
        try:
            losses = [worker.turn()["loss"] for _ in range(2)]
            summary = worker.summary()
        finally:
            worker.stop()
        assert np.mean(losses) == pytest.approx(np.log(1000), rel=0.05)
        assert 0 < summary["import_memory"] < summary["peak_memory"]


def test_a_worker_that_dies_says_why():
    worker = Worker("peers.training_step", "nobody")
    try:
        with pytest.raises(RuntimeError, match="(?s)exit status 2.*invalid choice: 'nobody'"):
            worker.turn()
    finally:
        worker.stop()


def test_an_unknown_competitor(run, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(training_step, "--only", "ours")
    assert stopped.value.code == 2
    assert "'ours' is not one of ours_xla, ours_graph" in capsys.readouterr().err


@pytest.mark.slow
def test_generation_writes_the_same_tokens(run):
    rows = rows_of(run(generation, "--tokens", "8", "--rounds", "1"))[2:]
    assert [row[:2] for row in rows] == [
        [batch, name]
        for batch in ("1", "8")
        for name in ("gpt1_keras, XLA", "gpt1_keras, graph", "Hugging Face")
    ]
    for row in rows:
        assert re.fullmatch(r"yes, [1-9]\d+ different", row[5])


def test_the_plain_model_is_the_same_decoder():
    backbone = gpt1_keras.GPT1Backbone(**SIZES["micro"])
    random = np.random.default_rng(0)
    for variable in backbone.weights:
        variable.assign(variable + random.normal(0.0, 0.1, variable.shape))
    weights = [backbone.token_embedding.embeddings, backbone.embedding.positions.embeddings]
    for block in backbone.blocks:
        weights += block_variables(block)
    plain = plain_gpt1(**SIZES["micro"])
    for variable, value in zip(plain.weights, weights, strict=True):
        variable.assign(value)
    ids = {"token_ids": random.integers(0, 1000, (2, 32))}
    expected = np.array(gpt1_keras.GPT1CausalLM(backbone)(ids))
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(plain(ids), expected, atol=2e-5, rtol=0)

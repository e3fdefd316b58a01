"""The measurements of the model: that they run, and that they compare like with like."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import gpt1_keras
from benchmarks.plain_gpt1 import plain_gpt1
from benchmarks.setting import SIZES
from gpt1_keras.convert.weights import block_variables

ROOT = pathlib.Path(__file__).parents[2]


def run(module, *arguments):
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", "--size", "micro", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )


def rows_of(report):
    """The cells of the lines of all tables."""
    lines = [line for line in report.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.slow
def test_tables_of_the_training_step(tmp_path):
    report = tmp_path / "report.md"
    names = ["ours_graph", "plain_graph"]
    arguments = ["--only", ",".join(names), "--batches", "2x32", "--steps", "2"]
    process = run("training_step", *arguments, "--output", str(report))
    assert process.returncode == 0, process.stderr
    assert report.read_text() in process.stdout

    # Untrained models of 1,000 tokens, whatever they are made of.
    losses = re.findall(r"mean loss (\S+)", process.stdout)
    assert [float(loss) for loss in losses] == pytest.approx([np.log(1000)] * 2, rel=0.05)

    rows = rows_of(report.read_text())
    speeds = {row[2]: row for row in rows if row[0] == "2 x 32" and len(row) == 10}
    assert list(speeds) == ["gpt1_keras, graph", "plain Keras, graph"]
    for row in speeds.values():
        tokens_per_second, seconds = float(row[3].replace(",", "")), float(row[4])
        assert tokens_per_second * seconds == pytest.approx(64, rel=0.02)
        assert 0 < float(row[7]) < float(row[6])
    ratios = next(row for row in rows if row[0] == "2 x 32" and len(row) == 8)
    assert ratios[2:5] == ["gpt1_keras, graph", "", ""]
    ours, plain = speeds.values()
    assert float(ratios[5]) == pytest.approx(float(plain[4]) / float(ours[4]), rel=0.05)
    products = [row[:2] for row in rows if row[0] in ("tensorflow", "torch")]
    assert products == [["tensorflow", "float32"], ["torch", "float32"]]


def test_an_unknown_competitor():
    process = run("training_step", "--only", "ours")
    assert process.returncode == 2
    assert "'ours' is none of ours_xla, ours_graph" in process.stderr


def test_generation_writes_the_same_tokens():
    process = run("generation", "--tokens", "8", "--rounds", "1")
    assert process.returncode == 0, process.stderr
    rows = rows_of(process.stdout)[2:]
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

"""The benchmark of learning to copy: its sequences, its beginnings, its table."""

import sys

import numpy as np
import pytest

from benchmarks import copying


def test_sequences_repeat_and_nothing_else():
    random = np.random.default_rng(3)
    for sequence in copying._sequences(random, 50, vocabulary=5000):
        is_repeated = [np.array_equal(sequence[n:], sequence[:-n]) for n in range(1, 28)]
        period = 1 + is_repeated.index(True)
        assert 8 <= period < 28 and len(set(sequence[:period])) > period / 2


@pytest.mark.slow
def test_a_row_for_each_rate_and_beginning(monkeypatch, capsys):
    arguments = ["--steps", "4", "--every", "2", "--learning-rates", "0.01,1e-3"]
    monkeypatch.setattr(sys, "argv", ["copying", "--vocabulary", "16", *arguments])
    monkeypatch.setattr(copying, "_WARMUP_STEPS", 1)
    copying.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["rate", "positions begin as", "2 updates", "4 updates"]
    paper, zeros = "N(0, 0.02), the paper's", "zeros"
    assert [row[:2] for row in rows[2:]] == [
        ["0.01", paper], ["0.01", zeros], ["0.001", paper], ["0.001", zeros]
    ]  # fmt: skip
    losses = np.array([row[2:] for row in rows[2:]], float)
    assert np.all(np.abs(losses - np.log(16)) < 0.5)
    assert len({tuple(row) for row in losses.tolist()}) == 4

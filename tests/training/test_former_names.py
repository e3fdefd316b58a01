"""Programs by their former names: they say so, and run."""

import runpy
import sys

import pytest


@pytest.mark.parametrize(
    ("former", "name"), [("draw", "plot_pretraining"), ("publish", "compress_preset")]
)
def test_a_former_name_runs_the_program(former, name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [former, "--help"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module(f"training.{former}", run_name="__main__")
    assert stopped.value.code == 0
    printed = capsys.readouterr()
    assert printed.err == f"training.{former} is now called training.{name}.\n"
    assert f"python -m training.{name}" in printed.out

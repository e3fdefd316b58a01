"""`python -m benchmarks` runs programs with arguments that they take, and keeps what they print."""

import argparse
import importlib
import pathlib
import re
import subprocess
import sys
from unittest import mock

import pytest

from benchmarks import __main__ as bench
from benchmarks.common.page import read_reports, tables_of, write_reports
from benchmarks.common.setting import machine, table

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs/benchmarks.md"
REPORT = "Made up. `python -m benchmarks.x`\n\n" + table(
    ["batch", "what", "s", "GB"], [["8", "ours", "4.71", "3.9"], ["8", "theirs", "4.83", ""]], 2
)


def test_reports_are_kept_by_machine_and_program():
    page = write_reports(
        "# Benchmarks\n\nText.\n", {"A": {"x": REPORT, "y": "old"}, "B": {"x": "b"}}
    )
    reports = read_reports(page)
    assert reports == {"A": {"x": REPORT, "y": "old"}, "B": {"x": "b"}}
    reports["A"]["y"] = "new"
    changed = write_reports(page, reports)
    assert changed == page.replace("old", "new")
    assert changed.startswith("# Benchmarks\n\nText.\n\n## By machine\n\n### A\n\n#### x\n")


def test_figures_of_a_table():
    assert tables_of(REPORT) == [
        [
            (["8", "ours"], {"s": "4.71", "GB": "3.9"}),
            (["8", "theirs"], {"s": "4.83", "GB": ""}),
        ]
    ]


def test_the_page_is_as_it_would_be_written():
    text = PAGE.read_text()
    reports = read_reports(text)
    assert write_reports(text, reports) == text
    for found in reports.values():
        for program, report in found.items():
            assert program in bench.PROGRAMS
            assert tables_of(report)
            for picture in re.findall(r"!\[.*\]\((.*)\)", report):
                assert (PAGE.parent / picture).exists()


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs `python -m benchmarks` on programs of which each does what a function says."""
    page = tmp_path / "benchmarks.md"
    page.write_text("# Benchmarks\n")

    def run(programs, function, *arguments):
        monkeypatch.setattr(bench, "PROGRAMS", programs)
        monkeypatch.setattr(subprocess, "run", function)
        monkeypatch.setattr(
            sys, "argv", ["benchmarks", "--shared", str(tmp_path), "--page", str(page), *arguments]
        )
        bench.main()
        return page.read_text()

    return run


def test_a_line_for_each_figure(run, capsys, tmp_path):
    commands = []

    def program(command, **kwargs):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, f"{REPORT}\n{tmp_path}/data\n")

    page = run({"x": "--only a"}, program, "x", "--steps", "2")
    assert commands == [[sys.executable, "-m", "benchmarks.x", "--only", "a", "--steps", "2"]]
    assert capsys.readouterr().out.splitlines() == [
        "x: 8, ours: s: 4.71",
        "x: 8, ours: GB: 3.9",
        "x: 8, theirs: s: 4.83",
    ]
    assert read_reports(page)[machine()]["x"] == f"{REPORT}\n$GPT1_KERAS_SHARED/data"


def test_what_lacks_its_data_is_left_out(run, capsys):
    assert run({"x": "--tokenizer {tokenizer}"}, None) == "# Benchmarks\n"
    assert "x: left out, as it needs tokenizer" in capsys.readouterr().out


def test_what_fails_is_named_and_the_others_run(run, capsys):
    def program(command, **kwargs):
        return subprocess.CompletedProcess(command, int(command[-1].endswith("x")), REPORT)

    with pytest.raises(SystemExit, match="x: exit status 1"):
        run({"x": "", "y": ""}, program)
    assert "y: 8, ours: s: 4.71" in capsys.readouterr().out


@pytest.mark.parametrize("name", bench.PROGRAMS)
def test_a_program_takes_its_arguments(name, monkeypatch):
    class Parsed(BaseException):
        pass

    parse_known_args = argparse.ArgumentParser.parse_known_args

    def stop(parser, args=None, namespace=None):
        _, more = parse_known_args(parser, args, namespace)
        assert not more
        raise Parsed

    values = dict.fromkeys(
        ("data", "data_sets", "tokenizer", "vocabulary", "merges", "book", "exports"), "DIR"
    )
    arguments = bench.PROGRAMS[name].format(**values, classifier="PRESET").split()
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    module = importlib.import_module(f"benchmarks.{name}")
    if not arguments and not hasattr(module, "argparse"):  # it takes none
        return
    with mock.patch.object(argparse.ArgumentParser, "parse_known_args", stop):
        with pytest.raises(Parsed):
            module.main()

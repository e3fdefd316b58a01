"""`python -m benchmarks` runs programs without arguments, and writes what they print."""

import argparse
import importlib
import subprocess
import sys
from unittest import mock

import pytest

from benchmarks import __main__ as bench
from benchmarks.__main__ import page_name, read_page, write_page
from benchmarks.harness import program as program_module
from benchmarks.harness.machine import machine
from benchmarks.harness.program import LEFT_OUT, Program, table
from gpt1_keras.cli import exit_status

PAGES = sorted(bench.PAGES.glob("*.md"))
REPORT = "Made up. `python -m benchmarks.x`\n\n" + table(
    ["batch", "what", "s", "GB"], [["8", "ours", "4.71", "3.9"], ["8", "theirs", "4.83", ""]], 2
)


def test_reports_are_kept_by_program(tmp_path):
    page = tmp_path / "pages/a.md"
    page.parent.mkdir()
    assert read_page(page) == {}
    write_page(page, "A", {"x": REPORT, "y": "old"})
    reports = read_page(page)
    assert reports == {"x": REPORT, "y": "old"}
    before = page.read_text()
    assert before.startswith("# A\n\n") and "\n\n## x\n\nMade up." in before
    write_page(page, "A", {**reports, "y": "new"})
    assert page.read_text() == before.replace("old", "new")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_as_it_would_be_written(page, tmp_path):
    text = page.read_text()
    name = text.partition("\n")[0].removeprefix("# ")
    assert page_name(name) == page.stem
    write_page(tmp_path / page.name, name, read_page(page))
    assert (tmp_path / page.name).read_text() == text


def test_the_results_link_to_all_machines():
    assert PAGES
    results = (bench.PAGES.parent / "benchmarks.md").read_text()
    for page in PAGES:
        assert f"(benchmarks/{page.name})" in results


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs `python -m benchmarks` on programs of which each does what a function says."""

    def run(programs, function, *arguments):
        monkeypatch.setattr(bench, "PROGRAMS", tuple(programs))
        monkeypatch.setattr(subprocess, "run", function)
        monkeypatch.setattr(sys, "argv", ["benchmarks", "--pages", str(tmp_path), *arguments])
        bench.main()
        return read_page(tmp_path / f"{page_name(machine())}.md")

    return run


def test_a_program_has_its_own_options(run):
    commands = []

    def program(command, **kwargs):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, f"{REPORT}\n")

    assert run("x", program, "x", "--steps", "2") == {"x": REPORT}
    assert commands == [[sys.executable, "-m", "benchmarks.x", "--steps", "2"]]


def test_what_lacks_its_data_is_left_out(run):
    def program(command, **kwargs):
        return subprocess.CompletedProcess(command, LEFT_OUT, "")

    assert run("x", program) == {}


def test_a_program_says_what_data_it_lacks(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["x", "--tokenizer", str(tmp_path / "missing")])
    with pytest.raises(SystemExit) as stopped:
        Program("x", "X.", "--tokenizer").parse()
    assert stopped.value.code == LEFT_OUT
    expected = f"benchmarks.x: left out, as there is no {tmp_path}/missing: see --tokenizer"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("name", ["predicting", "serving", "short_texts", "finetuning"])
def test_a_folder_without_the_data_set_is_one_line(name, monkeypatch, capsys, tmp_path):
    for folder in ("gpt1_bpe", "tfds", "books/valid"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(program_module, "_DATA", tmp_path)
    monkeypatch.setattr(sys, "argv", [name])
    assert exit_status(importlib.import_module(f"benchmarks.{name}").main) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: The data set glue/sst2 is not in ") and "\n" not in error[:-1]


def test_what_fails_is_named_and_the_others_run(run, capsys):
    def program(command, **kwargs):
        return subprocess.CompletedProcess(command, int(command[-1].endswith("x")), REPORT)

    with pytest.raises(SystemExit, match="x: exit status 1"):
        run("xy", program)
    assert f"## y\n\n{REPORT}" in capsys.readouterr().out


@pytest.mark.parametrize("name", bench.PROGRAMS)
def test_a_program_takes_no_arguments(name, monkeypatch):
    class Parsed(BaseException):
        pass

    parse_known_args = argparse.ArgumentParser.parse_known_args

    def stop(parser, args=None, namespace=None):
        _, more = parse_known_args(parser, args, namespace)
        assert not more
        raise Parsed

    monkeypatch.setattr(sys, "argv", [name])
    module = importlib.import_module(f"benchmarks.{name}")
    with mock.patch.object(argparse.ArgumentParser, "parse_known_args", stop):
        with pytest.raises(Parsed):
            module.main()

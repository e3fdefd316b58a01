"""The command `gpt1`: what it lists, what it runs, and what it takes from the folder at hand."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# What pip writes for the console script.
SCRIPT = """
import sys
from gpt1_keras.programs import main
if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture(scope="module")
def gpt1(tmp_path_factory):
    """Runs the command in a folder, whose modules have the names of ours."""
    script = tmp_path_factory.mktemp("bin") / "gpt1"
    script.write_text(SCRIPT)
    folder = tmp_path_factory.mktemp("at_hand")
    for name in ("training", "serving", "keras"):
        (folder / f"{name}.py").write_text("raise SystemExit('the wrong module')")

    def gpt1(*arguments, path=()):
        # This tree stands for what is installed.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, str(ROOT)])}
        command = [sys.executable, script, *map(str, arguments)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=folder,
            timeout=300,
            env=environment,
        )

    return gpt1


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_list(gpt1, arguments):
    done = gpt1(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: gpt1 PROGRAM [OPTIONS]")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "finetune Fine-tunes a model on one of the paper's data sets, or on your own." in lines
    assert "serve Serves models over gRPC and REST, as TensorFlow Serving does." in lines


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["fine-tune"], 2, "gpt1: error: Unknown program: fine-tune. Did you mean finetune?"),
        (["xyz"], 2, "gpt1: error: Unknown program: xyz. See gpt1 --help."),
        (["paper", "ablatt"], 2, "Unknown program: ablatt. Did you mean ablate?"),
        (["paper", "report", "--run", "x"], 2, "gpt1 paper report: error: Unknown option: --run."),
        (["finetune", "--presett", "x"], 2, "Unknown option: --presett. Did you mean --preset?"),
        (["compress-preset", "--output", "x"], 2, "gpt1 compress-preset: error: "),
    ],
)
def test_mistakes(gpt1, arguments, status, message):
    done = gpt1(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["finetune", "--help"]])
def test_a_folder_on_the_path_whose_modules_hide_ours(gpt1, arguments):
    done = gpt1(*arguments, path=["."])
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"gpt1: error: \S+/serving.py hides .* PYTHONPATH= gpt1 ...\n", done.stderr)


@pytest.mark.slow
def test_processes_that_a_program_starts(gpt1, tmp_path):
    """They import nothing from the folder at hand either."""
    for name in ("train/a.txt", "train/b.txt", "valid/c.txt"):
        (tmp_path / "books" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "books" / name).write_text("A good film, and a lovely one. " * 20)
    done = gpt1(
        "corpus", "--input", tmp_path / "books", "--tokenizer", "gpt1_tiny_books",
        "--processes", 2, "--output", tmp_path / "corpus",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "validation: " in done.stdout

"""Programs answer `--help` and wrong arguments without Keras, TensorFlow, or what imports them.

Seconds would depend on the machine; these imports are what takes them.
"""

import json
import subprocess
import sys

import pytest

from tests.docs.test_public_names import PAPER, PROGRAMS

HEAVY = ("keras", "keras_hub", "tensorflow", "grpc", "numpy", "sklearn", "matplotlib", "h5py")
SCRIPT = """
import runpy, sys
program, *arguments = sys.argv[1:]
sys.argv[1:] = arguments
try:
    runpy.run_module(program, run_name="__main__", alter_sys=True)
finally:
    print(*sys.modules, sep="\\n")
"""


def modules_after(program, *arguments, status):
    """The modules that a program has imported when it ends."""
    command = [sys.executable, "-c", SCRIPT, program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    return set(done.stdout.splitlines())


@pytest.mark.parametrize("name", PAPER)
def test_what_the_papers_programs_import(name):
    modules = modules_after("training.paper", name, "--help", status=0)
    assert modules.isdisjoint(HEAVY)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("--no-such-option", 2)])
def test_what_is_imported(program, argument, status):
    assert modules_after(program, argument, status=status).isdisjoint(HEAVY)


@pytest.mark.parametrize(
    ("program", "option"),
    [
        ("training.finetune", "--train"),
        ("training.evaluate", "--file"),
        ("training.calibrate", "--file"),
        ("serving.predict", "--input"),
    ],
)
def test_a_file_is_refused_before_keras_is_imported(tmp_path, program, option):
    path = tmp_path / "a.xlsx"
    path.write_text("no workbook")
    model = ["--config", "gpt1_micro"] if option == "--train" else ["--model", "none"]
    found = modules_after(
        program, option, str(path), *model, "--output", str(tmp_path / "a.csv"), status=1
    )
    assert found.isdisjoint({"keras", "tensorflow"})


@pytest.mark.parametrize("program", ["training.evaluate", "training.calibrate"])
def test_a_file_without_labels_is_refused_before_keras_is_imported(tmp_path, program):
    best = tmp_path / "run" / "best"
    best.mkdir(parents=True)
    task = {"config": {"preprocessor": {"config": {"fields": ["text"]}}}}
    (best / "task.json").write_text(json.dumps(task))
    path = tmp_path / "a.csv"
    path.write_text("text,date\nA fine film.,May\n")
    for model in (best.parent, best):
        options = ["--file", str(path), "--model", str(model), "--output", str(tmp_path / "out")]
        assert modules_after(program, *options, status=1).isdisjoint({"keras", "tensorflow"})

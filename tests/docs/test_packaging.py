"""`pip install .` installs everything that the packages hold."""

import pathlib
import runpy
import subprocess
import sys
import sysconfig
import venv
from unittest import mock

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ("gpt1_keras", "training", "serving")


@pytest.fixture(scope="module")
def settings():
    """The arguments that setup.py passes to setuptools."""
    with pytest.MonkeyPatch.context() as patch, mock.patch("setuptools.setup") as setup:
        patch.chdir(ROOT)
        runpy.run_path("setup.py")
    return setup.call_args.kwargs


def test_every_file_is_installed(settings):
    def folder(package):
        return ROOT / settings["package_dir"].get(package, package.replace(".", "/"))

    installed = {path for name in settings["packages"] for path in folder(name).glob("*.py")}
    for package, patterns in settings["package_data"].items():
        installed.update(path for each in patterns for path in folder(package).glob(each))
    files = {
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    files |= {ROOT / "examples/quickstart.py", ROOT / "examples/data/sentences.csv"}
    assert sorted(files - installed) == []


def test_a_minor_version_of_what_is_overridden_is_bounded(settings):
    """Their private hooks may be renamed in any minor version."""
    required = {line.split(">=")[0]: line for line in settings["install_requires"]}
    for name in ("tensorflow", "keras", "keras-nlp", "tensorflow-serving-api"):
        assert ",<" in required[name]


@pytest.mark.slow
def test_type_checkers_find_a_misspelt_argument(tmp_path):
    (tmp_path / "script.py").write_text("""
import gpt1_keras
from serving.export import export

backbone = gpt1_keras.GPT1Backbone(num_layers=3, name="backbone")
task = gpt1_keras.GPT1TextClassifier(backbone, class_names=["no", "yes"], trainable=False)
names: list[str] | None = task.class_names
export(task, "folder")

gpt1_keras.GPT1Backbone(num_layer=3)
gpt1_keras.GPT1TextClassifier(backbone, num_class=2)
export(task, foldr="folder")
""")
    # As if the packages were installed: then mypy reads those alone that have a py.typed.
    venv.create(tmp_path / "venv", symlinks=True)
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "installed.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache"),
            *("--python-executable", tmp_path / "venv/bin/python", "script.py"),
        ],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = [line.partition(": error: ")[0] for line in done.stdout.splitlines() if "error" in line]
    assert found[:-1] == [f"script.py:{line}" for line in (10, 11, 12)], done.stdout + done.stderr

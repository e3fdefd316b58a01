"""`pip install .` installs everything that the packages hold."""

import pathlib
import runpy
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
    folders = [ROOT / name.replace(".", "/") for name in settings["packages"]]
    installed = {path for folder in folders for path in folder.glob("*.py")}
    for package, patterns in settings["package_data"].items():
        installed.update(path for each in patterns for path in (ROOT / package).glob(each))
    files = {
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sorted(files - installed) == []


def test_a_minor_version_of_what_is_overridden_is_bounded(settings):
    """Their private hooks may be renamed in any minor version."""
    required = {line.split(">=")[0]: line for line in settings["install_requires"]}
    for name in ("tensorflow", "keras", "keras-nlp", "tensorflow-serving-api"):
        assert ",<" in required[name]

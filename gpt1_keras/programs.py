"""The programs by their names, for the command `gpt1`.

This table names them as strings, so that nothing imports both `training` and `serving`.
"""

import ast
import importlib.util
import os
import pathlib
import runpy
import sys
from collections.abc import Iterable

from gpt1_keras.cli import Program, choose
from gpt1_keras.version import __version__

# From headings of the list to programs, and from these to what `python -m` runs.
PROGRAMS = {
    "Learn from labelled texts, and answer others": {
        "finetune": "training.finetune",
        "evaluate": "training.evaluate",
        "calibrate": "training.calibrate",
        "predict": "serving.predict",
    },
    "Deploy": {
        "export": "serving.export",
        "check": "serving.check",
        "serve": "serving.server",
        "query": "serving.query",
        "tflite": "serving.tflite",
    },
    "Pre-train": {
        "corpus": "training.corpus",
        "pretrain": "training.pretrain",
        "perplexity": "training.perplexity",
        "compress_preset": "training.compress_preset",
        "generate": "serving.generate",
    },
    "Rebuild the paper's tables and figures": {
        "paper": "training.paper",
    },
}


def run(command: str, package: str = "") -> None:
    """Runs the program that the process's arguments name, as `python -m` would, or lists all.

    `command` is what the user typed before the program's name. The programs to choose from are
    those of a package, by default all.

    Raises:
        SystemExit: the program has ended, or there is none of that name, or a file of the user's
            hides it.
    """
    chosen = {
        heading: {name: module for name, module in group.items() if module.startswith(package)}
        for heading, group in PROGRAMS.items()
    }
    groups = {heading: group for heading, group in chosen.items() if group}
    modules = [module for group in groups.values() for module in group.values()]
    _check_packages(command, {module.partition(".")[0] for module in modules})
    if sys.argv[1:2] == ["--version"]:
        print(__version__)
        return
    module, arguments = choose(command, groups, _summary, sys.argv[1:])
    Program.command = f"{command} {sys.argv[1]}"
    sys.argv = ["-m", *arguments]  # as `python -m` has it until the program has been found
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Runs the command `gpt1`."""
    # As this command, the processes that it starts import nothing from the folder at hand.
    os.environ["PYTHONSAFEPATH"] = "1"
    run("gpt1")


def _check_packages(command: str, packages: Iterable[str]) -> None:
    """Raises SystemExit if Python would import something else under the name of a package."""
    ours = pathlib.Path(__file__).resolve().parents[1]
    for package in sorted(packages):
        spec = importlib.util.find_spec(package)
        found = None if spec is None or spec.origin is None else pathlib.Path(spec.origin).resolve()
        if found is not None and found != ours / package / "__init__.py":
            print(
                f"{command}: error: {found} hides the package {package} of gpt1_keras, as its "
                f"folder is on PYTHONPATH. Without it: PYTHONPATH= {command} ...",
                file=sys.stderr,
            )
            sys.exit(2)


def _summary(module: str) -> str:
    """Returns the first line of a program's docstring, without importing the program."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    if spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{module}.__main__")
    assert spec is not None and spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        return str(ast.get_docstring(ast.parse(file.read()))).partition("\n")[0]

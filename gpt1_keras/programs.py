"""The programs by their names, for the command `gpt1`.

This table names them as strings, so that nothing imports both `training` and `serving`.
"""

import ast
import importlib.util
import os
import pathlib
import runpy
import sys

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


def main() -> None:
    """Runs the program that the process's arguments name, as `python -m` would, or lists all.

    Raises:
        SystemExit: the program has ended, or there is none of that name, or a file of the user's
            hides it.
    """
    # As this command, the processes that it starts import nothing from the folder at hand.
    os.environ["PYTHONSAFEPATH"] = "1"
    _check_packages()
    if sys.argv[1:2] == ["--version"]:
        print(__version__)
        return
    module, arguments = choose("gpt1", PROGRAMS, _summary, sys.argv[1:])
    Program.command = f"gpt1 {sys.argv[1]}"
    sys.argv = ["-m", *arguments]  # as `python -m` has it until the program has been found
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _check_packages() -> None:
    """Raises SystemExit if Python would import something else under the name of a package."""
    ours = pathlib.Path(__file__).resolve().parents[1]
    for package in ("serving", "training"):
        spec = importlib.util.find_spec(package)
        found = None if spec is None or spec.origin is None else pathlib.Path(spec.origin).resolve()
        if found is not None and found != ours / package / "__init__.py":
            print(
                f"gpt1: error: {found} hides the package {package} of gpt1_keras, as its "
                f"folder is on PYTHONPATH. Without it: PYTHONPATH= gpt1 ...",
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

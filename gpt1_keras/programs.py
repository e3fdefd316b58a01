"""The programs by their names, for the command `gpt1`.

This table names them as strings, so that nothing imports both `training` and `serving`.
"""

import ast
import difflib
import importlib.util
import os
import pathlib
import runpy
import sys
from collections.abc import Iterable, Iterator, Mapping

from gpt1_keras.cli import Program, exit_status
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
        "ablate": "training.paper.ablate",
        "baselines": "training.paper.baselines",
        "context_use": "training.paper.context_use",
        "learning_curve": "training.paper.learning_curve",
        "ngrams": "training.paper.ngrams",
        "plot_pretraining": "training.paper.plot_pretraining",
        "report": "training.paper.report",
        "zero_shot": "training.paper.zero_shot",
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
    programs = {name: module for group in groups.values() for name, module in group.items()}
    _check_packages(command, {module.partition(".")[0] for module in programs.values()})
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        sys.exit(exit_status(lambda: print("\n".join(_list(command, groups)))))
    if name == "--version":
        print(__version__)
        return
    module = programs.get(name.replace("-", "_"))
    if module is None:
        near = difflib.get_close_matches(name, programs, 1)
        suggestion = f"Did you mean {near[0]}?" if near else f"See {command} --help."
        print(f"{command}: error: Unknown program: {name}. {suggestion}", file=sys.stderr)
        sys.exit(2)
    Program.command = f"{command} {name}"
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


def _list(command: str, groups: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yields the lines that list the programs under their headings."""
    width = max(len(name) for group in groups.values() for name in group)
    yield f"Usage: {command} PROGRAM [OPTIONS], see {command} PROGRAM --help"
    for heading, group in groups.items():
        yield f"\n{heading}:"
        yield from (f"  {name:{width}}  {_summary(module)}" for name, module in group.items())


def _summary(module: str) -> str:
    """Returns the first line of a program's docstring, without importing the program."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    if spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{module}.__main__")
    assert spec is not None and spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        return str(ast.get_docstring(ast.parse(file.read()))).partition("\n")[0]

"""Reads the commands of the pages, and parses them as our programs do."""

import importlib
import importlib.util
import pathlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

from gpt1_keras.cli import Commands, Program
from gpt1_keras.programs import PROGRAMS

_MODULES = {name: module for group in PROGRAMS.values() for name, module in group.items()}
_COMMAND = re.compile(rf"python -m (training|serving)\.|gpt1 ({'|'.join(_MODULES)}) ")


def commands_of(page: pathlib.Path) -> Iterator[str]:
    """Returns the commands of our programs, `gpt1` or `python -m`, in a page's code blocks."""
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            if _COMMAND.match(line) and "..." not in line:
                yield " ".join(line.split())


def module_of(command: str) -> str:
    """Returns what `python -m` would run."""
    words = command.split()
    return _MODULES[words[1]] if words[0] == "gpt1" else words[2]


def main_of(program: str) -> Program | Commands:
    """Returns the `main` of what `python -m program` runs."""
    if importlib.util.find_spec(program).submodule_search_locations is not None:
        program += ".__main__"
    return importlib.import_module(program).main


def parse(command: str) -> dict[str, Any]:
    """Returns a command's arguments as its program parses them, without running it.

    Raises:
        SystemExit: the program does not take these arguments.
    """
    words = shlex.split(command, comments=True)
    program, arguments = module_of(command), words[2 if words[0] == "gpt1" else 3 :]
    if "<" in arguments:  # the shell's
        del arguments[arguments.index("<") :]
    values, more = main_of(program).parse(arguments)
    if more and more[0] != "--":  # what comes after it is a runner's
        raise SystemExit(f"{program}: unrecognized arguments: {' '.join(more)}")
    return values

"""Reads the commands of the pages, and parses them as our programs do."""

import importlib
import importlib.util
import pathlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

from gpt1_keras.cli import Program

PACKAGES = ("training", "serving")


def commands_of(page: pathlib.Path) -> Iterator[str]:
    """Returns the `python -m` commands of our packages in a page's code blocks."""
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(rf"python -m ({'|'.join(PACKAGES)})\.", line) and "..." not in line:
                yield " ".join(line.split())


def main_of(program: str) -> Program:
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
    program, arguments = words[words.index("-m") + 1], words[words.index("-m") + 2 :]
    if "<" in arguments:  # the shell's
        del arguments[arguments.index("<") :]
    values, more = main_of(program).parse(arguments)
    if more:
        raise SystemExit(f"{program}: unrecognized arguments: {' '.join(more)}")
    return values

"""The commands of the pages, as our programs take them."""

import argparse
import importlib
import importlib.util
import pathlib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

PACKAGES = ("training", "serving")


class _Parsed(BaseException):
    """Leaves a program once its arguments are parsed; nothing catches it on the way."""


def commands_of(page: pathlib.Path) -> Iterator[str]:
    """The `python -m` commands of our packages in a Markdown page's code blocks."""
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(rf"python -m ({'|'.join(PACKAGES)})\.", line) and "..." not in line:
                yield " ".join(line.split())


def main_of(program: str) -> Callable[[Sequence[str] | None], int]:
    """The `main` of what `python -m program` runs."""
    if importlib.util.find_spec(program).submodule_search_locations is not None:
        program += ".__main__"
    return importlib.import_module(program).main


def parse(command: str) -> argparse.Namespace:
    """The arguments of a command, as its program parses them, without running it.

    Raises:
        SystemExit: the program does not take these arguments.
    """
    words = shlex.split(command, comments=True)
    program, arguments = words[words.index("-m") + 1], words[words.index("-m") + 2 :]
    if "<" in arguments:  # the shell's
        del arguments[arguments.index("<") :]
    parse_known_args = argparse.ArgumentParser.parse_known_args

    def stop(parser: argparse.ArgumentParser, args: Sequence[str], namespace=None) -> None:
        found, more = parse_known_args(parser, args, namespace)
        if more:
            parser.error(f"unrecognized arguments: {' '.join(more)}")
        raise _Parsed(found)

    with mock.patch.object(argparse.ArgumentParser, "parse_known_args", stop):
        try:
            main_of(program)(arguments)
        except _Parsed as parsed:
            return parsed.args[0]
    raise AssertionError(f"{program} does not parse its arguments with argparse")

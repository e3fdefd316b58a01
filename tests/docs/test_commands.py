"""Our programs take the arguments of the pages' commands."""

import pathlib

import pytest

from tests.helpers.commands import commands_of, parse

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "gpt1_keras/presets/gpt1_tiny_books/README.md",
]
COMMANDS = {command: page.name for page in PAGES for command in commands_of(page)}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[:60])
def test_a_page_s_command(command):
    parse(command)


def test_a_mistyped_option_is_found(capsys):
    with pytest.raises(SystemExit):
        parse("python -m training.corpus --input BOOKS --ouput corpus")
    assert "--output" in capsys.readouterr().err

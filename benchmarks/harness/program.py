"""A benchmark as a program: its options, and the report that it prints."""

import argparse
import os
import pathlib
import shlex
import sys

from benchmarks.harness.machine import describe
from benchmarks.harness.measured_models import SIZES

LEFT_OUT = 77  # exit status of a program that lacks its data, as in Automake
_DATA = pathlib.Path(os.environ.get("GPT1_KERAS_SHARED", "../shared"), "data")
_FOLDERS = {
    "--tokenizer": ("gpt1_bpe", "folder of encoder_bpe_40000.json and vocab_40000.bpe"),
    "--data-dir": ("tfds", "folder of prepared TensorFlow Datasets"),
    "--books": ("books/valid", "folder of books, text files with a paragraph a line"),
    "--novels": ("books/train", "folder of books of several authors, AUTHOR__TITLE.txt"),
}


class Program:
    """The options and the report of `python -m benchmarks.NAME`.

    Args:
        description: the module's docstring, of which `--help` prints the first line.
        *shared: options that several benchmarks have: --tokenizer, --data-dir, --books, --novels
            (by default in `$GPT1_KERAS_SHARED/data`), --size, --exports.
    """

    def __init__(self, name, description, *shared):
        self._name = name
        self._parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks.{name}", description=description.partition("\n")[0]
        )
        self._folders = [flag for flag in shared if flag in _FOLDERS]
        for flag in self._folders:
            folder, text = _FOLDERS[flag]
            self.add(flag, type=pathlib.Path, default=_DATA / folder, help=f"{text} (%(default)s)")
        if "--size" in shared:
            self.add("--size", choices=SIZES, default="paper", help="default: %(default)s")
        if "--exports" in shared:
            what = "folder of exports and peers' models, made if missing (%(default)s)"
            self.add("--exports", default="build/benchmarks", help=what)

    def add(self, *flags, **settings):
        """Adds another option, as `ArgumentParser.add_argument` does."""
        return self._parser.add_argument(*flags, **settings)

    def parse(self):
        """Returns the options. Ends with status `LEFT_OUT` if a folder of data is missing."""
        options = self._parser.parse_args()
        for flag in self._folders:
            folder = getattr(options, flag.removeprefix("--").replace("-", "_"))
            if not folder.exists():
                message = f"{self._parser.prog}: left out, as there is no {folder}: see {flag}\n"
                self._parser.exit(LEFT_OUT, message)
        return options

    def report(self, facts, *parts):
        """Prints the machine, facts and the command, then tables and notes."""
        command = shlex.join(["python", "-m", f"benchmarks.{self._name}", *sys.argv[1:]])
        print("\n\n".join([f"{describe()}. {facts} `{command}`", *filter(None, parts)]))


def table(header, rows, labels=1):
    """Formats cells, which are strings, as a Markdown table with aligned columns.

    Args:
        header: the columns' names.
        rows: lists with a cell for each column.
        labels: how many of the first columns are labels. The other columns are figures; they are
            aligned to the right, by which `tables_of` knows them.
    """
    widths = [max(3, *map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * width for width in widths[:labels]]
    rule += ["-" * (width - 1) + ":" for width in widths[labels:]]
    return "\n".join(
        "| "
        + " | ".join(
            cell.ljust(width) if number < labels else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths))
        )
        + " |"
        for line in [header, rule, *rows]
    )

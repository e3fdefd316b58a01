"""Runs the benchmarks, one after another, and writes what they find into docs/benchmarks.

    python -m benchmarks                     # all; takes hours
    python -m benchmarks costs --rounds 2    # one, with its own options

Each machine has its own page, named after its processor and flags. A benchmark whose data is
missing is left out, and so is what the machine cannot compute; a line says so. Nothing else may run
on the machine.

Half an hour of faults is a program apart (`benchmarks.soak`), and so is what runs on a GPU
(`benchmarks/gpu`).
"""

import argparse
import pathlib
import re
import subprocess
import sys

from benchmarks.harness.machine import machine
from benchmarks.harness.program import LEFT_OUT
from gpt1_keras.files import atomic_path

PAGES = pathlib.Path(__file__).parents[1] / "docs/benchmarks"
PROGRAMS = (
    *("short_texts", "training_step", "finetuning", "long_texts", "costs", "serving", "predicting"),
)
_INTRODUCTION = (
    "What `python -m benchmarks` printed on this machine. A command's options are those of the "
    "commit beside it."
)


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Runs the benchmarks and writes their tables into the machine's page.",
    )
    parser.add_argument("--pages", type=pathlib.Path, default=PAGES, help="folder (%(default)s)")
    parser.add_argument("program", nargs="?", choices=PROGRAMS, help="the only one to run")
    parser.add_argument("more", nargs=argparse.REMAINDER, help="options of that program")
    options = parser.parse_args()
    path = options.pages / f"{page_name(machine())}.md"
    failed = []
    for name in [options.program] if options.program else PROGRAMS:
        command = [sys.executable, "-m", f"benchmarks.{name}", *options.more]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if run.returncode == LEFT_OUT:  # the program has said why
            continue
        if run.returncode:
            failed.append(f"{name}: exit status {run.returncode}")
            continue
        print(f"## {name}\n\n{run.stdout}", flush=True)
        write_page(path, machine(), {**read_page(path), name: run.stdout.strip()})
    if failed:
        raise SystemExit("\n".join(failed))


def page_name(machine):
    """Returns the name of a machine's page, without `.md`."""
    return re.sub(r"\W+", "_", machine.lower()).strip("_")


def read_page(path):
    """Returns the reports of a page, by program; an empty dict if there is no page."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = (each.partition("\n") for each in re.split(r"^## ", text, flags=re.M)[1:])
    return {program: report.strip() for program, _, report in found}


def write_page(path, machine, reports):
    """Writes the page of a machine: its reports, by program."""
    parts = [f"# {machine}", _INTRODUCTION]
    parts += [f"## {program}\n\n{report}" for program, report in reports.items()]
    with atomic_path(path) as temporary:
        pathlib.Path(temporary).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

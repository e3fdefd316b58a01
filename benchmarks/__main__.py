"""Runs the benchmarks, one after another, and writes what they find into docs/benchmarks.

    python -m benchmarks                     # all; takes hours
    python -m benchmarks costs --rounds 2    # one, with its own options

Each benchmark prints a line for each figure. Each machine has its own page, named after its
processor and flags, with a picture. A benchmark whose data is missing is left out, and so is what
the machine cannot compute; a line says so. Nothing else may run on the machine.

Half an hour of faults is a program apart (`benchmarks.soak`), and so is what runs on a GPU
(`benchmarks/gpu`).
"""

import argparse
import pathlib
import subprocess
import sys

from benchmarks.harness.machine import machine
from benchmarks.harness.page import page_name, read_page, tables_of, write_page
from benchmarks.harness.program import LEFT_OUT

PAGES = pathlib.Path(__file__).parents[1] / "docs/benchmarks"
PROGRAMS = (
    *("short_texts", "training_step", "finetuning"),
    *("costs", "serving", "predicting", "on_device"),
)
_PLOTTED = ("costs", "serving")


def main():
    options = _parser().parse_args()
    chosen = [options.program] if options.program else PROGRAMS
    failed = []
    for name in chosen:
        command = [sys.executable, "-m", f"benchmarks.{name}", *options.more]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if run.returncode == LEFT_OUT:  # the program has said why
            continue
        if run.returncode:
            failed.append(f"{name}: exit status {run.returncode}")
            print(failed[-1], flush=True)
            continue
        for rows in tables_of(run.stdout):
            for labels, figures in rows:
                for column, figure in filter(all, figures.items()):
                    print(f"{name}: {', '.join(labels)}: {column}: {figure}", flush=True)
        _write(name, run.stdout.strip(), options.pages)
    if failed:
        raise SystemExit("\n".join(failed))


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Runs the benchmarks and writes their tables into the machine's page.",
    )
    parser.add_argument("--pages", type=pathlib.Path, default=PAGES, help="folder (%(default)s)")
    parser.add_argument("program", nargs="?", choices=PROGRAMS, help="the only one to run")
    parser.add_argument("more", nargs=argparse.REMAINDER, help="options of that program")
    return parser


def _write(name, report, folder):
    """Puts a report into the machine's page, and redraws the picture if it shows the report."""
    path = folder / f"{page_name(machine())}.md"
    reports = read_page(path)
    reports[name] = report
    if name in _PLOTTED and "costs" in reports:
        from benchmarks.plot_costs import plot_costs

        picture = path.with_name(f"costs_{path.stem}.svg")
        plot_costs(machine(), reports, picture)
        link = f"![What an answer costs each peer]({picture.name})"
        if link not in reports["costs"]:
            reports["costs"] += f"\n\n{link}"
    write_page(path, machine(), reports)


if __name__ == "__main__":
    main()

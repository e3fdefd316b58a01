"""A machine's page in docs/benchmarks: what each benchmark printed there."""

import pathlib
import re

from gpt1_keras.files import atomic_path

_INTRODUCTION = (
    "What `python -m benchmarks` printed on this machine. A command's options are those of the "
    "commit beside it."
)


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


def tables_of(report):
    """Returns the Markdown tables of a report, each a list of rows: `(labels, {column: figure})`.

    Columns that are aligned to the right are figures; see `benchmarks.harness.program.table`.
    """
    tables = []
    for block in re.findall(r"(?:^\|.*\n?)+", report, flags=re.M):
        header, rule, *rows = (_cells(line) for line in block.splitlines())
        labels = sum(not each.endswith(":") for each in rule)
        tables.append([(row[:labels], dict(zip(header[labels:], row[labels:]))) for row in rows])
    return tables


def _cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]

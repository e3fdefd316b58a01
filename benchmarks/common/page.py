"""docs/benchmarks.md: its last part holds what the benchmarks printed, by machine and program."""

import re

HEADING = "## By machine"


def read_reports(page):
    """What the page holds: `{machine: {program: report}}`.

    Args:
        page: the page's text. All from `HEADING` on is written by `write_reports`.
    """
    reports = {}
    _, _, part = page.partition(f"{HEADING}\n")
    for section in re.split(r"^### ", part, flags=re.M)[1:]:
        machine, _, rest = section.partition("\n")
        found = (each.partition("\n") for each in re.split(r"^#### ", rest, flags=re.M)[1:])
        reports[machine] = {program: report.strip() for program, _, report in found}
    return reports


def write_reports(page, reports):
    """The page's text with these reports in the place of those that it holds."""
    before, _, _ = page.partition(f"{HEADING}\n")
    parts = [f"{before.rstrip()}\n\n{HEADING}"]
    for machine, of_machine in reports.items():
        parts.append(f"### {machine}")
        parts += [f"#### {program}\n\n{report}" for program, report in of_machine.items()]
    return "\n\n".join(parts) + "\n"


def tables_of(report):
    """The Markdown tables of a report, each a list of rows: `(labels, {column: figure})`.

    Columns that are aligned to the right are figures, as `benchmarks.common.setting.table` has it.
    """
    tables = []
    for block in re.findall(r"(?:^\|.*\n?)+", report, flags=re.M):
        header, rule, *rows = (_cells(line) for line in block.splitlines())
        labels = sum(not each.endswith(":") for each in rule)
        tables.append([(row[:labels], dict(zip(header[labels:], row[labels:]))) for row in rows])
    return tables


def _cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]

"""Puts fine-tuned results into the paper's tables 2 to 5, beside the published ones.

    python -m training.paper.report --runs DIR --output DIR

It gathers every result.json of `training.finetune` and `training.paper.baselines` below `--runs`.
`--output` gets tables.md, and for each table a .csv and a .svg. Ours are medians and ranges over
seeds, of validation splits; the published ones, also of small models of others, are of test splits.
As evidence it gets scores.csv, of all runs, and predictions/TASK.csv, the answers of one seed, from
which the scores can be computed again.
"""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Iterable

from gpt1_keras.cli import option, program
from gpt1_keras.files import atomic_path, check_writable
from training.paper.evidence import write_predictions, write_scores
from training.paper.published_results import TABLES
from training.paper.results import Results, gather
from training.paper.tables import as_csv, as_markdown, fill, note_runs, plot_table


@dataclasses.dataclass(frozen=True)
class _Options:
    runs: tuple[str, ...] = option("folders, below which results are", consume_multiple=1)
    output: str = option("folder for tables.md, .csv and .svg")


def report(folders: Iterable[str | os.PathLike[str]], output: str | os.PathLike[str]) -> str:
    """Writes all tables that we have a result for.

    Args:
        folders: paths, below which results are.
        output: path of the folder to write to.

    Returns:
        The tables in Markdown.

    Raises:
        FileNotFoundError: there are no results.
        ValueError: the results cannot be told apart; see `training.paper.results.Results`.
    """
    results, folder = Results(gather(folders)), pathlib.Path(output)
    check_writable(folder)
    parts = []
    for name, table in TABLES.items():
        columns, rows = fill(table, results)
        if not any(count for row in rows for count in row.seeds or ()):
            continue
        parts.append(as_markdown(table.title, columns, rows) + note_runs(table, results))
        _write(folder / f"{name}.csv", as_csv(columns, rows))
        plot_table(table.title, columns, rows, folder / f"{name}.svg")
    write_scores([results], folder)
    write_predictions([results], folder)
    text = "\n".join(parts)
    _write(folder / "tables.md", text)
    return text


def _write(path: pathlib.Path, text: str) -> None:
    with atomic_path(path) as temporary:
        pathlib.Path(temporary).write_text(text, encoding="utf-8")


@program("training.paper.report")
def main(options: _Options) -> None:
    """Put fine-tuned results into the paper's tables, beside the published ones."""
    print(report(options.runs, options.output))


if __name__ == "__main__":
    sys.exit(main())

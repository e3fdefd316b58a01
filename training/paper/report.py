"""Puts fine-tuned results into the paper's tables 2 to 5, beside the published ones.

    python -m training.paper.report --runs DIR --output DIR

It gathers every result.json of `training.finetune` and `training.paper.baselines` below `--runs`.
`--output` gets tables.md, and for each table a .csv and a .svg. Ours are medians and ranges over
seeds, of validation splits; the published ones, also of small models of others, are of test splits.
As evidence it gets scores.csv, of all runs, and predictions/TASK.csv, the answers of one seed, from
which the scores can be computed again.
"""

import dataclasses
import sys

from gpt1_keras.cli import option, program


@dataclasses.dataclass(frozen=True)
class _Options:
    runs: tuple[str, ...] = option("folders, below which results are")
    output: str = option("folder for tables.md, .csv and .svg")


@program("training.paper.report")
def main(options: _Options) -> None:
    """Put fine-tuned results into the paper's tables, beside the published ones."""
    from training.paper.report_files import report

    print(report(options.runs, options.output))


if __name__ == "__main__":
    sys.exit(main())

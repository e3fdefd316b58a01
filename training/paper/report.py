"""Puts fine-tuned results into the paper's tables 2 to 5, beside the published ones.

    gpt1 report --runs DIR --output DIR

It gathers every result.json of `gpt1 finetune` and `gpt1 baselines` below `--runs`.
`--output` gets tables.md, and for each table a .svg. Our results are medians and ranges
over seeds, on validation splits. Published results, also those of others' small models, are on test
splits. As evidence, `--output` gets scores.csv, with the scores of all runs, and
predictions/TASK.csv, with the predictions of one seed, from which its scores can be computed again.
"""

import dataclasses
import sys

from gpt1_keras.cli import option, program


@dataclasses.dataclass(frozen=True)
class _Options:
    runs: tuple[str, ...] = option("folders with results, also in subfolders", consume_multiple=1)
    output: str = option("folder for tables.md, the plots and the evidence")


@program("training.paper.report")
def main(options: _Options) -> None:
    """Put fine-tuned results into the paper's tables, beside the published ones."""
    from training.paper.report_files import report

    print(report(options.runs, options.output))


if __name__ == "__main__":
    sys.exit(main())

"""Fine-tunes a model on one of the paper's data sets, or on your own.

    python -m training.finetune --task sst2 --preset NAME --data-dir DIR --output DIR
    python -m training.finetune --train FILE --validation FILE --preset NAME --output DIR

FILE is a .csv, .tsv or .jsonl whose columns tell what the task is; see
`training.datasets.user_files`.

Interrupted, the same command goes on from the last checkpoint. DIR/best is the preset of the best
epoch on the validation split, with a model card, README.md, and calibrated on that split:
DIR/calibration.json and .svg say how far its probabilities can be trusted, before and after.
DIR/result.json has its score, and DIR/predictions.jsonl its answers on that split; DIR/logs are for
TensorBoard.

With `--search N` it searches for the rate, epochs, lambda and layer-wise decay of the best score on
the validation split, in N trials: DIR/search.md is the table of all, DIR/search.svg their plot, and
DIR/best the best one's preset. With more trials, the same command goes on.
"""

import dataclasses
import sys

from gpt1_keras.cli import check_at_least_one, option, program
from training.datasets.data_options import DataOptions
from training.runs.finetune_options import FinetuneOptions

_SEARCH = "search for hyper-parameters (rate, epochs, lambda, layer-wise decay)"  # in --help


@dataclasses.dataclass(frozen=True)
class _OutputOptions:
    output: str = option("folder of the run: best/, result.json, logs/")


@dataclasses.dataclass(frozen=True)
class _SearchOptions:
    search: int | None = option(
        "how many trials; the first is of the options as they are", None, group=_SEARCH, metavar="N"
    )
    seeds: int = option("of each trial, whose median counts", 1, group=_SEARCH)

    def __post_init__(self) -> None:
        check_at_least_one(self, "search", "seeds")
        if self.search is None and self.seeds > 1:
            raise ValueError("seeds are for --search; a single run has one --seed.")


@program("training.finetune", resumable=True)
def main(
    options: FinetuneOptions, run: _OutputOptions, data: DataOptions, trials: _SearchOptions
) -> None:
    """Fine-tune a model on one of the paper's data sets, or on your own."""
    if trials.search is not None:
        from training.runs.search import search

        found = search(options, run.output, trials.search, trials.seeds, data)
        print(f"Best: trial {found['best_trial']}, median {found['median']:.4f}")
        return
    from training.runs.finetune_run import finetune

    result = finetune(options, run.output, data)
    print(f"{result['metric']}: {result['score']:.4f} (epoch {result['best_epoch']})")


if __name__ == "__main__":
    sys.exit(main())

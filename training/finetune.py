"""Fine-tunes a model on one of the paper's data sets, or on your own.

    gpt1 finetune --task sst2 --preset NAME --data-dir DIR --output DIR
    gpt1 finetune --train FILE --validation FILE --preset NAME --output DIR

FILE is a .csv, .tsv, .jsonl, .parquet or .xlsx, or a folder of Hugging Face's
`Dataset.save_to_disk`. Its columns tell what kind of model to train; see
`training.datasets.user_files`.

After an interruption, the same command goes on from the last checkpoint. DIR/best is the preset of
the epoch with the best score on the validation split; README.md in it is a model card. The model is
calibrated on that split: DIR/calibration.json and DIR/calibration.svg say how far its probabilities
can be trusted, before and after. DIR/result.json has its score, and those of simple baselines that
learn from the same texts; DIR/report.txt, confusion.svg and errors.csv say what it gets right and
wrong on that split, as those of `gpt1 evaluate`. DIR/logs are for TensorBoard.

`--search N` looks for the learning rate, epochs, lambda and layer-wise decay with the best score on
the validation split, in N trials. DIR/search.md is the table of all trials, DIR/search.svg their
plot, and DIR/best the preset of the best trial. The same command with a larger N goes on.
"""

import dataclasses
import sys

from gpt1_keras.cli import check_at_least_one, option, program
from gpt1_keras.labelled_files import table_options
from training.datasets.data_options import DataOptions
from training.runs import newest_saved
from training.runs.finetune_options import FinetuneOptions

_SEARCH = "search for hyper-parameters (rate, epochs, lambda, layer-wise decay)"  # in --help


@dataclasses.dataclass(frozen=True)
class _OutputOptions:
    output: str = option("folder of the run: best/, result.json, logs/")


@dataclasses.dataclass(frozen=True)
class _SearchOptions:
    search: int | None = option(
        "run this many trials; the first has the options as given", None, group=_SEARCH, metavar="N"
    )
    seeds: int = option("seeds of each trial; their median counts", 1, group=_SEARCH)

    def __post_init__(self) -> None:
        check_at_least_one(self, "search", "seeds")
        if self.search is None and self.seeds > 1:
            raise ValueError("seeds needs --search: a single run has one --seed.")


def _check(
    options: FinetuneOptions, run: _OutputOptions, data: DataOptions, trials: _SearchOptions
) -> None:
    """Reads the user's files, so that bad ones are refused at once."""
    if options.train is not None:
        from training.datasets.user_files import find_user_files

        table = table_options(options, options.preset)
        find_user_files(options.train, options.validation, table, score_range=options.scores)


@program("training.finetune", resumable=newest_saved, check=_check)
def main(
    options: FinetuneOptions, run: _OutputOptions, data: DataOptions, trials: _SearchOptions
) -> None:
    """Fine-tune a model on one of the paper's data sets, or on your own."""
    from training.evaluation.baselines import describe_beside

    if trials.search is not None:
        from training.runs.search import search

        found = search(options, run.output, trials.search, trials.seeds, data)
        print(f"\n{describe_beside(found['median'], found['baselines'])}\n")
        print(f"Best: trial {found['best_trial']}, median {found['median']:.4f}")
        return
    from training.evaluation.answer_report import read_report
    from training.runs.finetuning import finetune

    result = finetune(options, run.output, data)
    print(f"\n{describe_beside(result['score'], result['baselines'])}")
    print(f"\n{read_report(run.output)}")
    print(f"{result['metric']}: {result['score']:.4f} (epoch {result['best_epoch']})")


if __name__ == "__main__":
    sys.exit(main())

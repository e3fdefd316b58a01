"""Scores trivial baselines on the paper's data sets: what a model must beat to show anything.

    gpt1 baselines --tasks sst2,mrpc --data-dir DIR --output DIR

The baselines are the most frequent label, a linear model on the words (tf-idf), and, where an
example has several texts, the share of words that they have in common. They learn from the train
split; with `--limit-examples`, from the examples that `gpt1 finetune` samples with each seed.
They are scored on the validation split by the same metrics. `gpt1 report --runs DIR ...`
puts them into the tables. Beside each result.json are its predictions, predictions.jsonl.
"""

import dataclasses
import sys

from gpt1_keras.cli import check_at_least_one, option, program
from training.datasets.data_options import DataOptions
from training.datasets.paper_datasets import DATASETS, find_dataset


@dataclasses.dataclass(frozen=True)
class _Options:
    tasks: str = option("some of " + ",".join(sorted(DATASETS)))
    output: str = option("folder for TASK/BASELINE/seed_N/result.json")
    limit_examples: int | None = option(
        "learn from this many examples, chosen at random (default: all)", None
    )
    seeds: int = option("how many samples, with --limit-examples", 3)

    def __post_init__(self) -> None:
        check_at_least_one(self, "limit_examples", "seeds")
        for name in self.tasks.split(","):
            find_dataset(name)


@program("training.paper.baselines")
def main(options: _Options, data: DataOptions) -> None:
    """Score trivial baselines on the paper's data sets."""
    from training.paper.baseline_runs import score_baselines

    for name in options.tasks.split(","):
        arguments = (options.output, options.limit_examples, options.seeds)
        for result in score_baselines(name, *arguments, data):
            shown = ", ".join(f"{key} {value:.4f}" for key, value in result["metrics"].items())
            print(f"{name}, {result['baseline']}, seed {result['seed']}: {shown}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Scores trivial baselines on the paper's data sets: what a model must beat to show anything.

    python -m training.paper.baselines --tasks sst2,mrpc --data-dir DIR --output DIR

They are the most frequent label, a linear model on the words (tf-idf), and of several texts the
share of the words that they have in common. They learn from the train split, or with
`--limit-examples` from what `training.finetune` samples by each seed, and are scored on the
validation split by the same metrics. `training.paper.report --runs DIR ...` puts them into the
tables. Each result.json has its predictions beside it, predictions.jsonl.
"""

import dataclasses
import json
import os
import pathlib
import re
import sys
from collections.abc import Iterable
from typing import Any

import gpt1_keras
from gpt1_keras.cli import check_at_least_one, option, program
from gpt1_keras.files import atomic_path, check_writable
from training.datasets.labelled_examples import load_examples
from training.datasets.tasks import TASKS, find_task
from training.datasets.tfds_builders import DataOptions
from training.evaluation.baselines import baselines_of
from training.evaluation.predictions import write_predictions
from training.evaluation.scoring import check_scorable, score
from training.runs.finetune_options import FinetuneOptions


@dataclasses.dataclass(frozen=True)
class _Options:
    tasks: str = option("some of " + ",".join(sorted(TASKS)))
    output: str = option("folder for TASK/BASELINE/seed_N/result.json")
    limit_examples: int | None = option(
        "learn from this many examples, chosen at random (default: all)", None
    )
    seeds: int = option("how many samples, with --limit-examples", 3)

    def __post_init__(self) -> None:
        check_at_least_one(self, "limit_examples", "seeds")


def score_baselines(
    name: str,
    output: str | os.PathLike[str],
    limit_examples: int | None = None,
    seeds: int = 3,
    data_dir: str | None = None,
    download: bool = False,
) -> list[dict[str, Any]]:
    """Scores all baselines of a task.

    Args:
        name: key of `training.datasets.tasks.TASKS`.
        output: path of the folder for `NAME/BASELINE/seed_N/result.json`.
        limit_examples: how many examples to learn from, sampled by each seed; all by default, and
            then there is one seed, as nothing else is random.
        seeds: how many; they are 0, 1, ...
        data_dir: folder of the prepared data sets; TensorFlow Datasets' own by default.
        download: whether to download and prepare a missing data set.

    Returns:
        The content of each `result.json`.

    Raises:
        FileNotFoundError: the data set does not exist.
        ValueError: an unknown task, or data that cannot be scored.
        OSError: nothing can be written to `output`.
    """
    task, folder = find_task(name), pathlib.Path(output)
    check_writable(folder)
    train = load_examples(task, "train", data_dir, download).labelled()
    validation = load_examples(task, "validation", data_dir, download).labelled()
    check_scorable(validation, task.metrics, f"The validation data of {name}")
    results = []
    for seed in range(1 if limit_examples is None else seeds):
        known = train if limit_examples is None else train.sample(limit_examples, seed)
        for baseline, predict in baselines_of(task).items():
            answers = predict(task, known, validation)
            scores = score(validation, answers, task.metrics)
            result = {
                "task": name,
                "baseline": baseline,
                "seed": seed,
                "limit_examples": limit_examples,
                "metric": task.metrics[0],
                "score": scores[task.metrics[0]],
                "metrics": scores,
                "train_examples": len(known),
                "validation_examples": len(validation),
                "gpt1_keras": gpt1_keras.__version__,
            }
            path = folder / name / re.sub(r"\W+", "_", baseline) / f"seed_{seed}"
            write_predictions(path, validation, answers)
            with atomic_path(path / "result.json") as temporary:
                pathlib.Path(temporary).write_text(json.dumps(result, indent=2) + "\n")
            results.append(result)
    return results


def score_baselines_of_runs(
    runs: Iterable[FinetuneOptions],
    output: str | os.PathLike[str],
    data_dir: str | None = None,
    download: bool = False,
) -> None:
    """Scores the baselines on what runs of `training.finetune` learn from, but for those that are.

    Args:
        runs: on data sets of the paper; their seeds are 0, 1, ...
        output: path of the folder for `LIMIT/TASK/BASELINE/seed_N/result.json`.
        data_dir: as in `score_baselines`, like `download`.
        download: whether to download and prepare a missing data set.
    """
    seeds: dict[tuple[str, int | None], int] = {}
    for options in runs:
        assert options.task is not None  # of the paper
        key = options.task, options.limit_examples
        seeds[key] = max(seeds.get(key, 1), options.seed + 1)
    for (name, limit), count in seeds.items():
        folder, last = pathlib.Path(output, str(limit or "all")), 0 if limit is None else count - 1
        done = list((folder / name).glob(f"*/seed_{last}/result.json"))
        if len(done) < len(baselines_of(find_task(name))):
            print(f"Baselines of {name}, examples: {limit or 'all'}", flush=True)
            score_baselines(name, folder, limit, count, data_dir, download)


@program("training.paper.baselines")
def main(options: _Options, data: DataOptions) -> None:
    """Score trivial baselines on the paper's data sets."""
    names = options.tasks.split(",")
    for name in names:
        find_task(name)
    for name in names:
        arguments = (options.output, options.limit_examples, options.seeds)
        for result in score_baselines(name, *arguments, **vars(data)):
            shown = ", ".join(f"{key} {value:.4f}" for key, value in result["metrics"].items())
            print(f"{name}, {result['baseline']}, seed {result['seed']}: {shown}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Grids of fine-tuning runs on the paper's data sets, and baselines on the same examples."""

import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gpt1_keras
from gpt1_keras.files import check_writable, write_json
from gpt1_keras.presets import find_preset
from training.datasets.data_options import DEFAULT_DATA, DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import find_dataset
from training.evaluation.baselines import baselines_of
from training.evaluation.metrics import check_scorable, score
from training.evaluation.predictions import write_predictions
from training.paper.grid_options import GridOptions
from training.runs.finetune_options import FinetuneOptions
from training.runs.finetuning import finetune, memory_freed

_SHARED = ("preset", "epochs", "batch_size", "learning_rate", "dropout", "dtype")


def make_grid(
    shared: GridOptions,
    datasets: Iterable[str],
    variants: Mapping[str, Mapping[str, Any]],
    **changes: Any,
) -> dict[str, FinetuneOptions]:
    """Makes the runs of each variant on each data set with each seed.

    Args:
        shared: what all runs share; seeds are 0, 1, ...
        datasets: keys of `training.datasets.paper_datasets.DATASETS`.
        variants: dict from name to the attributes of `FinetuneOptions` that differ.
        **changes: further attributes of `FinetuneOptions`, the same for all runs.

    Returns:
        dict from a run's path below `runs` to its options. The first seed of all data sets comes
        first, so that tables have figures early.
    """
    same = {name: getattr(shared, name) for name in _SHARED} | changes
    datasets = list(datasets)
    return {
        f"{dataset}/{name}/seed_{seed}": FinetuneOptions(
            dataset, seed=seed, head_first=False, **{**same, **different}
        )
        for seed in range(shared.seeds)
        for dataset in datasets
        for name, different in variants.items()
    }


def run_grid(
    grid: Mapping[str, FinetuneOptions],
    output: str | os.PathLike[str],
    data: DataOptions,
    after_each: Callable[[pathlib.Path], None] = lambda run: None,
) -> None:
    """Starts or resumes the runs of a grid, one after another, after the baselines.

    Args:
        after_each: called with the folder of each run that has ended.
    """
    folder = pathlib.Path(output)
    check_writable(folder)
    for preset in {options.preset for options in grid.values() if options.preset is not None}:
        find_preset(preset)
    score_baselines_of_runs(grid.values(), folder / "baselines", data)
    for number, (name, options) in enumerate(grid.items(), start=1):
        print(f"Run {number} of {len(grid)}: {name}", flush=True)
        run = folder / "runs" / name
        with memory_freed():
            finetune(options, run, data)
        after_each(run)


def score_baselines(
    name: str,
    output: str | os.PathLike[str],
    limit_examples: int | None = None,
    seeds: int = 3,
    data: DataOptions = DEFAULT_DATA,
) -> None:
    """Scores trivial baselines on a data set: what a model must beat to show anything.

    They learn from the train split; with a limit, from the examples that `gpt1 finetune` samples
    with each seed. They are scored on the validation split by the same metrics. Beside each
    result.json are its predictions, predictions.jsonl.

    Args:
        output: path of the folder for `NAME/BASELINE/seed_N/result.json`.
        limit_examples: how many examples to learn from; all by default. With all examples there is
            one seed, because nothing is random.
        seeds: how many seeds; they are 0, 1, ...
    """
    dataset, folder = find_dataset(name), pathlib.Path(output)
    check_writable(folder)
    train = load_examples(dataset, "train", data).labelled()
    validation = load_examples(dataset, "validation", data).labelled()
    check_scorable(validation, dataset.metrics, f"The validation data of {name}")
    for seed in range(1 if limit_examples is None else seeds):
        known = train if limit_examples is None else train.sample(limit_examples, seed)
        for baseline, predict in baselines_of(dataset).items():
            answers = predict(dataset, known, validation)
            scores = score(validation, answers, dataset.metrics)
            result = {
                "task": name,
                "baseline": baseline,
                "seed": seed,
                "limit_examples": limit_examples,
                "metric": dataset.metrics[0],
                "score": scores[dataset.metrics[0]],
                "metrics": scores,
                "train_examples": len(known),
                "validation_examples": len(validation),
                "gpt1_keras": gpt1_keras.__version__,
            }
            path = folder / name / re.sub(r"\W+", "_", baseline) / f"seed_{seed}"
            write_predictions(path, validation, answers)
            write_json(path / "result.json", result)


def score_baselines_of_runs(
    runs: Iterable[FinetuneOptions],
    output: str | os.PathLike[str],
    data: DataOptions = DEFAULT_DATA,
) -> None:
    """Scores the baselines on the examples that some fine-tuning runs learn from.

    Baselines that `output` holds already are not scored again.

    Args:
        runs: of `gpt1 finetune` on data sets of the paper; their seeds are 0, 1, ...
        output: path of the folder for `LIMIT/TASK/BASELINE/seed_N/result.json`.
    """
    seeds: dict[tuple[str, int | None], int] = {}
    for options in runs:
        assert options.task is not None  # of the paper
        key = options.task, options.limit_examples
        seeds[key] = max(seeds.get(key, 1), options.seed + 1)
    for (name, limit), count in seeds.items():
        folder, last = pathlib.Path(output, str(limit or "all")), 0 if limit is None else count - 1
        done = list((folder / name).glob(f"*/seed_{last}/result.json"))
        if len(done) < len(baselines_of(find_dataset(name))):
            print(f"Baselines of {name}, examples: {limit or 'all'}", flush=True)
            score_baselines(name, folder, limit, count, data)

"""Grids of fine-tuning runs on the paper's data sets, which run after the baselines."""

import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpt1_keras.files import check_writable
from gpt1_keras.presets import find_preset
from training.datasets.data_options import DataOptions
from training.paper.baseline_runs import score_baselines_of_runs
from training.paper.grid_options import GridOptions
from training.runs.finetune_options import FinetuneOptions
from training.runs.finetune_run import finetune
from training.runs.memory import memory_freed

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
            dataset, seed=seed, **{**same, **different}
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

"""Learning curves: scores against the number of labels, with and without pre-training."""

import os
import pathlib
import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.ticker

from gpt1_keras.files import write_text
from gpt1_keras.recipe import FineTuningRecipe
from training.datasets.data_options import DEFAULT_DATA, DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import DATASETS, find_dataset
from training.evaluation.baselines import MAJORITY, OVERLAP, TFIDF
from training.evaluation.plots import BLUE, ORANGE, new_figure, save
from training.paper.gathered_results import Results, gather
from training.paper.grid_options import ALL_LABELS, VARIANTS, CurveOptions, GridOptions
from training.paper.grids import make_grid, run_grid
from training.paper.published_results import FULL
from training.paper.report import describe_seeds, show, write_evidence
from training.runs.finetune_options import FinetuneOptions

_TABLES = "learning_curve.md"
_SHOWN = (FULL, "no pre-training")
_SHARED = ("preset", "batch_size", "learning_rate")  # options that runs of all sizes must share
_STYLES: dict[str, dict[str, Any]] = {
    FULL: {"color": BLUE, "marker": "o", "label": "pre-trained"},
    "no pre-training": {"color": ORANGE, "marker": "s", "label": "no pre-training"},
    TFIDF: {"color": "0.35", "linestyle": "--", "label": TFIDF},
    OVERLAP: {"color": "0.35", "linestyle": "-.", "label": OVERLAP},
    MAJORITY: {"color": "0.35", "linestyle": ":", "label": MAJORITY},
}  # of the variants


def learning_curve(
    grid: Mapping[str, FinetuneOptions],
    output: str | os.PathLike[str],
    data: DataOptions = DEFAULT_DATA,
) -> str:
    """Starts or resumes the runs of learning curves; returns their tables in Markdown."""
    folder = pathlib.Path(output)

    def report_run(run: pathlib.Path) -> None:
        shutil.rmtree(run / "best", ignore_errors=True)  # presets would fill the disk
        _report(folder)

    run_grid(grid, folder, data, report_run)
    return (folder / _TABLES).read_text(encoding="utf-8")


def _report(folder: pathlib.Path) -> None:
    results = by_size(gather([folder / "baselines", folder / "runs"]))
    found = {dataset for each in results.values() for _, dataset in each.runs}
    datasets = [dataset for dataset in DATASETS if dataset in found]
    text = "\n".join(as_markdown(dataset, results) for dataset in datasets)
    write_text(folder / _TABLES, text)
    plot_curves(datasets, results, folder / "learning_curve.svg")
    write_evidence(list(results.values()), folder)


def curve_grid(
    shared: GridOptions, options: CurveOptions, data: DataOptions
) -> dict[str, FinetuneOptions]:
    """Makes the runs of learning curves, one for each data set, as `make_curve` returns them."""
    return {
        path: run
        for name in shared.dataset_names
        for path, run in make_curve(
            shared, name, _sizes(name, options.counts, data), options.min_updates
        ).items()
    }


def make_curve(
    shared: GridOptions, dataset: str, sizes: Mapping[int | None, int], min_updates: int
) -> dict[str, FinetuneOptions]:
    """Makes the runs of a data set's learning curve.

    Args:
        shared: what all runs share. A seed's smaller samples are parts of its larger ones.
        sizes: dict from a number of labels, or None for all, to that number.
        min_updates: of each run; runs on few labels have more epochs to reach it.

    Returns:
        dict from a run's path below `runs` to its options, the first seed of all sizes first.
    """
    runs: dict[tuple[int, int], dict[str, FinetuneOptions]] = {}
    variants = {name: VARIANTS[name] for name in ("full", "no_pretraining")}
    recipe = FineTuningRecipe(epochs=shared.epochs, min_updates=min_updates)
    for limit, size in sizes.items():
        epochs = recipe.epochs_for(-(-size // shared.batch_size))
        grid = make_grid(shared, [dataset], variants, limit_examples=limit, epochs=epochs)
        for name, options in grid.items():
            path = f"{ALL_LABELS if limit is None else limit}/{name}"
            runs.setdefault((options.seed, size), {})[path] = options
    return {path: options for key in sorted(runs) for path, options in runs[key].items()}


def _sizes(dataset: str, labels: Sequence[str], data: DataOptions) -> dict[int | None, int]:
    examples = load_examples(find_dataset(dataset), "train", data).labelled()
    sizes: dict[int | None, int] = {
        int(count): int(count)
        for count in labels
        if count != ALL_LABELS and int(count) < len(examples)
    }
    if ALL_LABELS in labels:
        sizes[None] = len(examples)
    if not sizes:
        raise ValueError(
            f"{dataset} has {len(examples)} labels; expected a number below it, or {ALL_LABELS}."
        )
    return sizes


def by_size(
    gathered: Sequence[tuple[Any, dict[str, Any]]],
) -> dict[int, Results]:
    """Groups results by the number of labels that they learned from, in order."""
    tuned = [result for _, result in gathered if "baseline" not in result]
    for name in _SHARED:
        values = sorted({str(result[name]) for result in tuned})
        if len(values) > 1:
            raise ValueError(f"The runs of a learning curve differ in {name}: {', '.join(values)}.")
    groups: dict[int, list[tuple[Any, dict[str, Any]]]] = {}
    for path, result in gathered:
        groups.setdefault(result["train_examples"], []).append((path, result))
    return {size: Results(groups[size]) for size in sorted(groups)}


def as_markdown(dataset: str, results: Mapping[int, Results]) -> str:
    """Formats the learning curve of a data set as a table: medians, and lowest to highest."""
    found = [
        variant
        for variant in _STYLES
        if any(r.runs.get((variant, dataset)) for r in results.values())
    ]
    metric = find_dataset(dataset).metrics[0]
    titles = [_STYLES[variant]["label"] for variant in found]
    lines = [f"## {dataset} ({metric})", "", f"| labels | epochs | {' | '.join(titles)} |"]
    lines.append("|---:" * (len(found) + 2) + "|")
    for size, of_size in results.items():
        if any(dataset == name for _, name in of_size.runs):
            epochs = {
                str(result["epochs"])
                for (_, name), runs in of_size.runs.items()
                for _, result in runs.values()
                if name == dataset and "epochs" in result
            }
            cells = [
                show(of_size.median(variant, [dataset]), of_size.extremes(variant, [dataset]))
                for variant in found
            ]
            lines.append(f"| {size:,} | {', '.join(sorted(epochs))} | {' | '.join(cells)} |")
    seeds = describe_seeds(
        len(of_size.scores(variant, dataset)) for of_size in results.values() for variant in _SHOWN
    )
    lines += ["", f"Medians of {seeds}, of the validation split."]
    return "\n".join(lines) + "\n"


def plot_curves(
    datasets: Sequence[str], results: Mapping[int, Results], path: str | os.PathLike[str]
) -> None:
    """Plots the learning curves: medians as lines, the range of the seeds as bars."""
    figure, panels = new_figure(
        width=max(6.4, 4.2 * len(datasets)), height=4.4, columns=len(datasets)
    )
    for axes, dataset in zip(panels, datasets):
        shown: set[int] = set()
        for variant, style in _STYLES.items():
            by_seed = {size: each.scores(variant, dataset) for size, each in results.items()}
            scores = {size: list(found.values()) for size, found in by_seed.items() if found}
            if not scores:
                continue
            shown |= scores.keys()
            medians = [statistics.median(found) for found in scores.values()]
            below = [median - min(found) for median, found in zip(medians, scores.values())]
            above = [max(found) - median for median, found in zip(medians, scores.values())]
            spread = [below, above] if variant in _SHOWN else None
            axes.errorbar(list(scores), medians, spread, capsize=3, **style)
        axes.set_xscale("log")
        axes.set_xticks(sorted(shown), [f"{size:,}" for size in sorted(shown)])
        axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        axes.set(xlabel="labels", title=f"{dataset} ({find_dataset(dataset).metrics[0]})")
    panels[0].set(ylabel="validation score")
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels())
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=3, edgecolor="none")
    save(figure, path)

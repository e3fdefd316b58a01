"""Learning curves: scores against the number of labels, with and without pre-training."""

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.ticker

from training.datasets.tasks import find_task
from training.evaluation.baselines import MAJORITY, OVERLAP, TFIDF
from training.evaluation.plots import BLUE, ORANGE, new_figure, save
from training.paper.ablations import make_grid
from training.paper.published_results import FULL
from training.paper.results import Results
from training.paper.tables import describe_duration, describe_seeds, show
from training.runs.finetune_options import FinetuneOptions

VARIANTS = (FULL, "no pre-training")
_SHARED = ("preset", "batch_size", "learning_rate")  # options of all sizes
_STYLES: dict[str, dict[str, Any]] = {
    FULL: {"color": BLUE, "marker": "o", "label": "pre-trained"},
    "no pre-training": {"color": ORANGE, "marker": "s", "label": "no pre-training"},
    TFIDF: {"color": "0.35", "linestyle": "--", "label": TFIDF},
    OVERLAP: {"color": "0.35", "linestyle": "-.", "label": OVERLAP},
    MAJORITY: {"color": "0.35", "linestyle": ":", "label": MAJORITY},
}  # of the variants


def make_curve(
    task: str,
    sizes: Mapping[int | None, int],
    preset: str,
    seeds: int,
    min_updates: int,
    **finetuning: Any,
) -> dict[str, FinetuneOptions]:
    """Makes the runs of a task's learning curve.

    Args:
        task: key of `training.datasets.tasks.TASKS`.
        sizes: dict from a number of labels, or None for all, to how many these are.
        preset: a name, a folder or a handle, as of `gpt1_keras.presets.find_preset`.
        seeds: how many; they are 0, 1, ... Of a seed, few labels are among many.
        min_updates: runs on few labels have more epochs than the others, for as many updates.
        **finetuning: further attributes of `FinetuneOptions`: at least `epochs` and `batch_size`.

    Returns:
        dict from a run's path below `runs` to its options, the first seed of all sizes first.
    """
    runs: dict[tuple[int, int], dict[str, FinetuneOptions]] = {}
    for limit, size in sizes.items():
        updates = -(-size // finetuning["batch_size"])
        epochs = max(finetuning["epochs"], -(-min_updates // updates))
        arguments = finetuning | {"epochs": epochs, "limit_examples": limit}
        variants = ("full", "no_pretraining")
        for name, options in make_grid([task], preset, seeds, variants, **arguments).items():
            folder = f"{'all' if limit is None else limit}/{name}"
            runs.setdefault((options.seed, size), {})[folder] = options
    return {name: options for key in sorted(runs) for name, options in runs[key].items()}


def by_size(
    gathered: Sequence[tuple[Any, dict[str, Any]]],
) -> dict[int, Results]:
    """Groups results by the number of labels that they learned from, in order.

    Raises:
        ValueError: as of `Results`; or fine-tunings differ in more than that number and the epochs.
    """
    tuned = [result for _, result in gathered if "baseline" not in result]
    for name in _SHARED:
        values = sorted({str(result[name]) for result in tuned})
        if len(values) > 1:
            raise ValueError(f"The runs of a learning curve differ in {name}: {', '.join(values)}.")
    groups: dict[int, list[tuple[Any, dict[str, Any]]]] = {}
    for path, result in gathered:
        groups.setdefault(result["train_examples"], []).append((path, result))
    return {size: Results(groups[size]) for size in sorted(groups)}


def as_markdown(task: str, results: Mapping[int, Results]) -> str:
    """Formats the learning curve of a task as a table: medians, and lowest to highest."""
    found = [
        variant for variant in _STYLES if any(r.runs.get((variant, task)) for r in results.values())
    ]
    metric = find_task(task).metrics[0]
    titles = [_STYLES[variant]["label"] for variant in found]
    lines = [f"## {task} ({metric})", "", f"| labels | epochs | {' | '.join(titles)} |"]
    lines.append("|---:" * (len(found) + 2) + "|")
    for size, of_size in results.items():
        if any(task == name for _, name in of_size.runs):
            epochs = {
                str(result["epochs"])
                for (_, name), runs in of_size.runs.items()
                for _, result in runs.values()
                if name == task and "epochs" in result
            }
            cells = [
                show(of_size.median(variant, [task]), of_size.extremes(variant, [task]))
                for variant in found
            ]
            lines.append(f"| {size:,} | {', '.join(sorted(epochs))} | {' | '.join(cells)} |")
    seconds = sum(each.seconds(VARIANTS, [task]) for each in results.values())
    seeds = describe_seeds(
        len(of_size.scores(variant, task)) for of_size in results.values() for variant in VARIANTS
    )
    lines += ["", f"Medians of {seeds}, of the validation split; the fine-tunings took "]
    lines[-1] += f"{describe_duration(seconds)}."
    return "\n".join(lines) + "\n"


def plot_curves(
    tasks: Sequence[str], results: Mapping[int, Results], path: str | os.PathLike[str]
) -> None:
    """Plots the learning curves: medians as lines, the range of the seeds as bars.

    Args:
        tasks: a panel for each.
        results: from `by_size`.
        path: of the plot.
    """
    figure, panels = new_figure(width=max(6.4, 4.2 * len(tasks)), height=4.4, columns=len(tasks))
    for axes, task in zip(panels, tasks):
        shown: set[int] = set()
        for variant, style in _STYLES.items():
            by_seed = {size: each.scores(variant, task) for size, each in results.items()}
            scores = {size: list(found.values()) for size, found in by_seed.items() if found}
            if not scores:
                continue
            shown |= scores.keys()
            medians = [statistics.median(found) for found in scores.values()]
            below = [median - min(found) for median, found in zip(medians, scores.values())]
            above = [max(found) - median for median, found in zip(medians, scores.values())]
            spread = [below, above] if variant in VARIANTS else None
            axes.errorbar(list(scores), medians, spread, capsize=3, **style)
        axes.set_xscale("log")
        axes.set_xticks(sorted(shown), [f"{size:,}" for size in sorted(shown)])
        axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        axes.set(xlabel="labels", title=f"{task} ({find_task(task).metrics[0]})")
    panels[0].set(ylabel="validation score")
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels())
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=3, edgecolor="none")
    save(figure, path)

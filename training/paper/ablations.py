"""The paper's ablations: which runs they take, and the plot of blocks transferred (section 5)."""

import os
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.presets import find_preset
from training.datasets.tasks import TASKS, find_task
from training.evaluation.plots import COLORS, new_figure, save
from training.paper.published_results import FULL
from training.paper.results import Results
from training.runs.finetune_options import FinetuneOptions

VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "no_auxiliary_loss": {"lm_coefficient": 0.0},
    "no_pretraining": {"transfer": "none"},
}  # and what they change


def make_grid(
    tasks: Iterable[str],
    preset: str,
    seeds: int,
    variants: Iterable[str] = tuple(VARIANTS),
    lstm: str | None = None,
    layers: bool = False,
    **finetuning: Any,
) -> dict[str, FinetuneOptions]:
    """Makes the runs of an ablation.

    Args:
        tasks: keys of `training.datasets.tasks.TASKS`.
        preset: a name, a folder or a handle, as of `gpt1_keras.presets.find_preset`.
        seeds: how many; they are 0, 1, ...
        variants: keys of `VARIANTS`.
        lstm: the same as `preset`, of an LSTM.
        layers: whether to transfer the first 0, 1, ... blocks too.
        **finetuning: further attributes of `FinetuneOptions`, the same for all runs.

    Returns:
        dict from a run's path below `runs` to its options; the first seeds of all tasks come first,
        so that there are tables early.

    Raises:
        FileNotFoundError: a preset does not exist.
        ValueError: an unknown task or variant, or an option out of its range.
    """
    tasks = list(tasks)
    for task in tasks:
        find_task(task)
    starts: dict[str, dict[str, Any]] = {}
    for name in variants:
        if name not in VARIANTS:
            raise ValueError(f"Unknown variant {name!r}; expected one of {list(VARIANTS)}.")
        starts[name] = {"preset": preset, **VARIANTS[name]}
    if lstm is not None:
        starts["lstm"] = {"preset": lstm}
    if layers:
        starts |= {
            f"{count}_blocks": {"preset": preset, "transfer": str(count)}
            for count in range(_count_blocks(preset))
        }
    return {
        f"{task}/{name}/seed_{seed}": FinetuneOptions(task, seed=seed, **start, **finetuning)
        for seed in range(seeds)
        for task in tasks
        for name, start in starts.items()
    }


def plot_transfer(
    results: Results, blocks: Mapping[int, str], path: str | os.PathLike[str]
) -> None:
    """Plots scores against blocks transferred (figure 2, left).

    There is a panel for each data set that has runs with some of the blocks.

    Args:
        results: of the runs.
        blocks: dict from number of blocks, except all of them, to the results' variant.
        path: of the plot.
    """
    points = {**blocks, max(blocks) + 1: FULL}
    tasks = [task for task in TASKS if any(results.scores(name, task) for name in blocks.values())]
    figure, panels = new_figure(width=3.2 * len(tasks), height=3.6, columns=len(tasks))
    for panel, task, color in zip(panels, tasks, COLORS * 3):
        found = {count: results.scores(name, task) for count, name in points.items()}
        for count, scores in found.items():
            panel.plot([count] * len(scores), list(scores.values()), ".", color=color, alpha=0.5)
        medians = {count: statistics.median(s.values()) for count, s in found.items() if s}
        panel.plot(list(medians), list(medians.values()), color=color)
        none = results.median("no pre-training", [task])
        if none is not None:
            panel.axhline(none, color="0.5", linestyle="--", label="no pre-training")
            panel.legend(edgecolor="none")
        panel.set(title=task, xlabel="blocks transferred", ylabel=TASKS[task].metrics[0])
        panel.set_xticks(list(points))
    save(figure, path)


def _count_blocks(preset: str) -> int:
    backbone = CausalBackbone.from_preset(str(find_preset(preset)), load_weights=False)
    return len(getattr(backbone, "blocks", ()))

"""The paper's ablations: their runs, and the plot of scores against transferred blocks."""

import os
import pathlib
import runpy
import statistics
import sys
from collections.abc import Mapping

from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.presets import find_preset
from training.datasets.data_options import DEFAULT_DATA, DataOptions
from training.datasets.paper_datasets import DATASETS
from training.evaluation.plots import COLORS, new_figure, save
from training.paper.gathered_results import Results, gather
from training.paper.grid_options import VARIANTS, AblationOptions, GridOptions
from training.paper.grids import make_grid, run_grid
from training.paper.published_results import FULL
from training.paper.report import report
from training.runs.finetune_options import FinetuneOptions


def ablation_grid(shared: GridOptions, options: AblationOptions) -> dict[str, FinetuneOptions]:
    """Makes the runs of an ablation, as `make_grid` returns them."""
    variants = {name: VARIANTS[name] for name in options.variant_names}
    if options.lstm is not None:
        variants["lstm"] = {"preset": options.lstm}
    if options.layers:
        counts = range(_count_blocks(shared.preset))
        variants |= {f"{count}_blocks": {"transfer": str(count)} for count in counts}
    return make_grid(shared, shared.dataset_names, variants, limit_examples=options.limit_examples)


def ablate(
    grid: Mapping[str, FinetuneOptions],
    output: str | os.PathLike[str],
    data: DataOptions = DEFAULT_DATA,
) -> str:
    """Starts or resumes the runs of an ablation, and plots them; returns tables in Markdown."""
    folder = pathlib.Path(output)
    run_grid(grid, folder, data)
    blocks = {
        int(options.transfer): f"{options.transfer} blocks"
        for options in grid.values()
        if options.transfer.isdecimal()
    }
    if blocks:
        plot_transfer(Results(gather([folder / "runs"])), blocks, folder / "transfer.svg")
    return report([folder / "runs", folder / "baselines"], folder)


def plot_transfer(
    results: Results, blocks: Mapping[int, str], path: str | os.PathLike[str]
) -> None:
    """Plots scores against blocks transferred (figure 2, left).

    Each data set that has runs with some of the blocks has a panel.

    Args:
        blocks: dict from number of blocks, except all of them, to the results' variant.
    """
    points = {**blocks, max(blocks) + 1: FULL}
    datasets = [
        dataset
        for dataset in DATASETS
        if any(results.scores(name, dataset) for name in blocks.values())
    ]
    figure, panels = new_figure(width=3.2 * len(datasets), height=3.6, columns=len(datasets))
    for panel, dataset, color in zip(panels, datasets, COLORS * 3):
        found = {count: results.scores(name, dataset) for count, name in points.items()}
        for count, scores in found.items():
            panel.plot([count] * len(scores), list(scores.values()), ".", color=color, alpha=0.5)
        medians = {count: statistics.median(s.values()) for count, s in found.items() if s}
        panel.plot(list(medians), list(medians.values()), color=color)
        none = results.median("no pre-training", [dataset])
        if none is not None:
            panel.axhline(none, color="0.5", linestyle="--", label="no pre-training")
            panel.legend(edgecolor="none")
        panel.set(title=dataset, xlabel="blocks transferred", ylabel=DATASETS[dataset].metrics[0])
        panel.set_xticks(list(points))
    save(figure, path)


def _count_blocks(preset: str) -> int:
    backbone = CausalBackbone.from_preset(str(find_preset(preset)), load_weights=False)
    return len(getattr(backbone, "blocks", ()))


if __name__ == "__main__":  # `python -m training.paper.ablate` is `gpt1 paper ablate`
    sys.argv.insert(1, "ablate")
    runpy.run_module("training.paper", run_name="__main__", alter_sys=True)

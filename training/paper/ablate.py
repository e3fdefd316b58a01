"""Runs the paper's ablations: its table 5, and the left of its figure 2.

    python -m training.paper.ablate --tasks sst2,cola --preset NAME --data-dir DIR --output DIR

It fine-tunes on each data set with each seed from each start: in full, without the auxiliary loss,
without pre-training (`--variants` picks some); with `--lstm PRESET`, from an LSTM that was
pre-trained alike; with `--layers`, from the embeddings and the first 0, 1, ... blocks, with fresh
weights in the others.
Each run is a folder of DIR/runs, as `training.finetune` writes it; DIR/baselines are the trivial
baselines on the same examples. Interrupted, the same command goes on. DIR gets the tables of
`training.paper.report` and what it keeps, and DIR/transfer.svg.
"""

import dataclasses
import os
import pathlib
import sys

from gpt1_keras.cli import check_at_least_one, option, program
from gpt1_keras.files import check_writable
from gpt1_keras.presets import PRESET_HELP
from training.datasets.tasks import TASKS
from training.datasets.tfds_builders import DataOptions
from training.finetune import finetune_all
from training.paper.ablations import VARIANTS, make_grid, plot_transfer
from training.paper.baselines import score_baselines_of_runs
from training.paper.report import report
from training.paper.results import Results, gather
from training.runs.finetune_options import FinetuneOptions, SharedOptions


@dataclasses.dataclass(frozen=True)
class _Options:
    tasks: str = option("some of " + ",".join(sorted(TASKS)))
    preset: str = option(PRESET_HELP)
    output: str = option("folder for runs/, the tables and the plot")
    variants: str = option("some of " + ",".join(VARIANTS), ",".join(VARIANTS))
    lstm: str | None = option(
        "folder of an LSTM's preset, pre-trained alike", None, metavar="PRESET"
    )
    layers: bool = option("transfer the first 0, 1, ... blocks too", False)
    seeds: int = option("how many", 3)
    limit_examples: int | None = option(
        "train on this many examples, chosen at random (default: all)", None
    )

    def __post_init__(self) -> None:
        check_at_least_one(self, "seeds", "limit_examples")


def ablate(
    grid: dict[str, FinetuneOptions],
    output: str | os.PathLike[str],
    data_dir: str | None = None,
    download: bool = False,
    verbose: str | int = "auto",
) -> str:
    """Starts or resumes the runs of a grid, and scores the trivial baselines beside them.

    Args:
        grid: from `make_grid`.
        output: path of the folder for the runs, the tables and the plot.
        data_dir: folder of the prepared data sets; TensorFlow Datasets' own by default.
        download: whether to download and prepare missing data sets.
        verbose: progress bars, as in `keras.Model.fit`.

    Returns:
        The tables in Markdown.

    Raises:
        FileNotFoundError: a data set does not exist.
        ValueError: `output` holds runs with other options.
        OSError: nothing can be written to `output`.
    """
    folder = pathlib.Path(output)
    check_writable(folder)
    score_baselines_of_runs(grid.values(), folder / "baselines", data_dir, download)
    finetune_all(grid, folder / "runs", data_dir, download, verbose)
    blocks = {
        int(options.transfer): f"{options.transfer} blocks"
        for options in grid.values()
        if options.transfer.isdecimal()
    }
    if blocks:
        plot_transfer(Results(gather([folder / "runs"])), blocks, folder / "transfer.svg")
    return report([folder / "runs", folder / "baselines"], folder)


@program("training.paper.ablate", resumable=True)
def main(options: _Options, shared: SharedOptions, data: DataOptions) -> None:
    """Run the paper's ablations, and put them into its tables and figure."""
    grid = make_grid(
        options.tasks.split(","),
        options.preset,
        options.seeds,
        options.variants.split(","),
        options.lstm,
        options.layers,
        limit_examples=options.limit_examples,
        **vars(shared),
    )
    print(ablate(grid, options.output, **vars(data)))


if __name__ == "__main__":
    sys.exit(main())

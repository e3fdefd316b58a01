"""Shows what pre-training is worth by the number of labels: the paper's point, plotted.

    python -m training.paper.learning_curve --tasks sst2 --preset NAME --data-dir DIR --output DIR

It fine-tunes on 100, 300, ... and all labels of each data set, from the preset and from random
weights, with several seeds, and scores the trivial baselines on the same samples. DIR gets
learning_curve.svg and learning_curve.md: medians and ranges. Each run is a folder of DIR/runs, as
`training.finetune` writes it, but for its preset. Interrupted, the same command goes on, also with
more labels, tasks or seeds. As evidence, DIR gets scores.csv and predictions/, as of
`training.paper.report`.
"""

import dataclasses
import os
import pathlib
import shutil
import sys
from collections.abc import Sequence

from gpt1_keras.cli import check_at_least_one, option, program
from gpt1_keras.files import atomic_path, check_writable
from gpt1_keras.presets import PRESET_HELP
from training.datasets.labelled_examples import load_examples
from training.datasets.tasks import TASKS, find_task
from training.datasets.tfds_builders import DataOptions
from training.finetune import finetune_all
from training.paper.baselines import score_baselines_of_runs
from training.paper.evidence import write_predictions, write_scores
from training.paper.learning_curves import as_markdown, by_size, make_curve, plot_curves
from training.paper.results import gather
from training.runs.finetune_options import FinetuneOptions, SharedOptions

_ALL = "all"
_TABLES = "learning_curve.md"


@dataclasses.dataclass(frozen=True)
class _Options:
    tasks: str = option("some of " + ",".join(sorted(TASKS)))
    preset: str = option(PRESET_HELP)
    output: str = option("folder for runs/, baselines/, the table and the plot")
    labels: str = option(
        "numbers of labels, sampled by each seed, or all", f"100,300,1000,3000,10000,{_ALL}"
    )
    seeds: int = option("how many", 3)
    min_updates: int = option("of each run: few labels are read in more epochs for it", 200)

    def __post_init__(self) -> None:
        check_at_least_one(self, "seeds", "min_updates")
        for task in self.tasks.split(","):
            find_task(task)
        for count in self.labels.split(","):
            if count != _ALL and (not count.isdecimal() or not int(count)):
                raise ValueError(f"labels must be numbers above 0, or {_ALL}. Received: {count!r}.")


def learning_curve(
    runs: dict[str, FinetuneOptions],
    output: str | os.PathLike[str],
    data_dir: str | None = None,
    download: bool = False,
    verbose: str | int = "auto",
) -> str:
    """Starts or resumes the runs of learning curves, and scores the baselines beside them.

    Args:
        runs: from `training.paper.learning_curves.make_curve`, of one task or several.
        output: path of the folder for the runs, the table and the plot.
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
    score_baselines_of_runs(runs.values(), folder / "baselines", data_dir, download)

    def report_run(run: pathlib.Path) -> None:
        shutil.rmtree(run / "best", ignore_errors=True)  # lest they fill the disk
        _report(folder)

    finetune_all(runs, folder / "runs", data_dir, download, verbose, report_run)
    return (folder / _TABLES).read_text(encoding="utf-8")


def _report(folder: pathlib.Path) -> None:
    """Writes the tables, the plot and the evidence of all runs in a folder."""
    results = by_size(gather([folder / "baselines", folder / "runs"]))
    found = {task for each in results.values() for _, task in each.runs}
    tasks = [task for task in TASKS if task in found]
    text = "\n".join(as_markdown(task, results) for task in tasks)
    with atomic_path(folder / _TABLES) as temporary:
        pathlib.Path(temporary).write_text(text, encoding="utf-8")
    plot_curves(tasks, results, folder / "learning_curve.svg")
    write_scores(list(results.values()), folder)
    write_predictions(list(results.values()), folder)


def _sizes(
    task: str, labels: Sequence[str], data_dir: str | None, download: bool
) -> dict[int | None, int]:
    """The numbers of labels by what `limit_examples` asks for; those that there are not, left out.

    Raises:
        ValueError: the data set has fewer labels than all the numbers.
    """
    examples = load_examples(find_task(task), "train", data_dir, download).labelled()
    sizes: dict[int | None, int] = {
        int(count): int(count) for count in labels if count != _ALL and int(count) < len(examples)
    }
    if _ALL in labels:
        sizes[None] = len(examples)
    if not sizes:
        raise ValueError(
            f"{task} has {len(examples)} labels; expected a number below it, or {_ALL}."
        )
    return sizes


@program("training.paper.learning_curve", resumable=True)
def main(options: _Options, shared: SharedOptions, data: DataOptions) -> None:
    """Fine-tune on more and more labels, with and without pre-training, and plot the scores."""
    runs: dict[str, FinetuneOptions] = {}
    for task in options.tasks.split(","):
        sizes = _sizes(task, options.labels.split(","), **vars(data))
        runs |= make_curve(
            task, sizes, options.preset, options.seeds, options.min_updates, **vars(shared)
        )
    print(learning_curve(runs, options.output, **vars(data)))


if __name__ == "__main__":
    sys.exit(main())

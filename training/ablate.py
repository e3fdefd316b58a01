"""Runs the paper's ablations: its table 5, and the left of its figure 2.

    python -m training.ablate --tasks sst2,cola --preset gpt1_tiny_books --data-dir DIR --output DIR

Each data set is fine-tuned with each seed from each start: in full, without the auxiliary loss,
without pre-training; with `--lstm PRESET`, from an LSTM pre-trained alike; with `--layers`, from
embeddings and the first 0, 1, ... blocks, the others drawn afresh. Each run is a folder of
DIR/runs, as `training.finetune` writes it. Interrupted, the same command goes on. DIR gets the
tables of `training.report`, and DIR/transfer.svg.
"""

import argparse
import pathlib
import statistics
import sys

import keras

from gpt1_keras.cli import check_at_least_one
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.presets import PRETRAINED, find_preset
from training.datasets.tasks import TASKS, find_task
from training.evaluation.plots import COLORS, new_axes, save
from training.finetune import FinetuneOptions, finetune
from training.paper.published_results import FULL
from training.report import Results, gather, report

_CHANGES = {
    "full": {},
    "no_auxiliary_loss": {"lm_coefficient": 0.0},
    "no_pretraining": {"transfer": "none"},
}


def make_grid(tasks, preset, seeds, lstm=None, layers=False, **finetuning):
    """The runs of an ablation.

    Args:
        tasks: list of keys of `training.datasets.tasks.TASKS`.
        preset: name of a preset that ships, or path of a preset's folder.
        seeds: int, how many; they are 0, 1, ...
        lstm: the same, of an LSTM.
        layers: bool, whether to transfer part of the blocks too.
        **finetuning: further attributes of `training.finetune.FinetuneOptions`, the same for all runs.

    Returns:
        dict from a run's path below `runs` to its `FinetuneOptions`; all data sets' first seeds come first,
        so that the tables are early.

    Raises:
        FileNotFoundError: a preset is not there.
        ValueError: an unknown task, or an option out of its range.
    """
    for task in tasks:
        find_task(task)
    variants = {name: {"preset": preset, **changes} for name, changes in _CHANGES.items()}
    if lstm is not None:
        variants["lstm"] = {"preset": lstm}
    if layers:
        variants |= {
            f"{count}_blocks": {"preset": preset, "transfer": str(count)}
            for count in range(_count_blocks(preset))
        }
    return {
        f"{task}/{name}/seed_{seed}": FinetuneOptions(task, seed=seed, **variant, **finetuning)
        for seed in range(seeds)
        for task in tasks
        for name, variant in variants.items()
    }


def ablate(grid, output, data_dir=None, download=False, verbose="auto"):
    """Runs, or goes on with, a grid.

    Args:
        grid: as `make_grid` gives it.
        output: path of the folder for the runs, the tables and the figure.
        data_dir, download, verbose: as in `training.finetune.finetune`.

    Returns:
        str, the tables in Markdown.

    Raises:
        FileNotFoundError: a data set is not there.
        ValueError: `output` holds runs with other options.
    """
    output = pathlib.Path(output)
    for number, (name, options) in enumerate(grid.items(), start=1):
        print(f"Run {number} of {len(grid)}: {name}", flush=True)
        finetune(options, output / "runs" / name, data_dir, download, verbose)
        keras.utils.clear_session(free_memory=True)
    blocks = {
        int(options.transfer): f"{options.transfer} blocks"
        for options in grid.values()
        if options.transfer.isdecimal()
    }
    if blocks:
        plot_transfer(Results(gather([output / "runs"])), blocks, output / "transfer.svg")
    return report([output / "runs"], output)


def plot_transfer(results, blocks, path):
    """Draws scores against blocks transferred (figure 2, left), a panel for each data set that has
    runs with part of the blocks.

    Args:
        results: `training.report.Results`.
        blocks: dict from numbers of blocks, but all of them, to the results' variants.
        path: of the picture.
    """
    points = {**blocks, max(blocks) + 1: FULL}
    tasks = [
        task for task in TASKS if any((name, task) in results.scores for name in blocks.values())
    ]
    figure, axes = new_axes(width=3.2 * len(tasks), height=3.6, columns=len(tasks))
    for place, (task, color) in enumerate(zip(tasks, COLORS * 3)):
        panel = figure.axes[place]
        found = {count: results.scores.get((name, task), {}) for count, name in points.items()}
        for count, scores in found.items():
            panel.plot([count] * len(scores), scores.values(), ".", color=color, alpha=0.5)
        medians = {count: statistics.median(s.values()) for count, s in found.items() if s}
        panel.plot(medians.keys(), medians.values(), color=color)
        none = results.median("no pre-training", [task])
        if none is not None:
            panel.axhline(none, color="0.5", linestyle="--", label="no pre-training")
            panel.legend(edgecolor="none")
        panel.set(title=task, xlabel="blocks transferred", ylabel=TASKS[task].metrics[0])
        panel.set_xticks(list(points))
    save(figure, path)


def _count_blocks(preset):
    decoder = CausalBackbone.from_preset(str(find_preset(preset)), load_weights=False)
    return len(getattr(decoder, "blocks", ()))


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m training.ablate",
        description="Run the paper's ablations, and put them into its tables and figure.",
        epilog="Interrupted, the same command goes on.",
    )
    add = parser.add_argument
    add("--tasks", required=True, help="some of " + ",".join(sorted(TASKS)))
    add("--preset", required=True, help=f"{', '.join(PRETRAINED)}, or a preset's folder")
    add("--output", required=True, help="folder for runs/, the tables and the figure")
    add("--lstm", metavar="PRESET", help="folder of an LSTM's preset, pre-trained alike")
    add("--layers", action="store_true", help="transfer the first 0, 1, ... blocks too")
    add("--seeds", type=int, default=3, help="how many (default: %(default)s)")
    add("--data-dir", help="folder of prepared TensorFlow Datasets (default: TFDS's own)")
    add("--download", action="store_true", help="fetch and prepare data sets that are missing")
    finetuning = {
        "epochs": (int, "passes over the training data"),
        "batch_size": (int, "examples an update"),
        "learning_rate": (float, "the schedule's peak"),
        "limit_examples": (int, "train on this many examples, drawn at random"),
    }
    for name, (kind, text) in finetuning.items():
        default = getattr(FinetuneOptions, name)
        text += " (default: %(default)s)" if default is not None else ""
        add(f"--{name.replace('_', '-')}", type=kind, default=default, help=text)
    options = parser.parse_args(arguments)
    try:
        check_at_least_one(options, "seeds")
        grid = make_grid(
            options.tasks.split(","),
            options.preset,
            options.seeds,
            options.lstm,
            options.layers,
            **{name: getattr(options, name) for name in finetuning},
        )
        print(ablate(grid, options.output, options.data_dir, options.download))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from the last checkpoint.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Tests what a language model knows without fine-tuning (section 5 of the paper).

    python -m training.paper.zero_shot --preset gpt1_tiny_books --data-dir DIR --output DIR
    python -m training.paper.zero_shot --run RUN --data-dir DIR --output DIR

Each probe asks which text the model finds likelier. DIR/result.json has the scores, and each as a
share of the way from guessing (0) to the best single model before the paper (1). RUN is a finished
pre-training with snapshots (`training.pretrain --snapshot-every N`), or its legs in order: then all
snapshots are scored, and DIR/zero_shot.svg plots the shares against passes over the corpus, as the
paper's figure 2 does against updates; `--beside` adds another run, such as the LSTM's, dashed.
Interrupted, the same command goes on.
"""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from gpt1_keras.cli import check_at_least_one, option, program
from gpt1_keras.files import read_json
from gpt1_keras.presets import PRESET_HELP
from training.datasets.tfds_builders import DataOptions
from training.evaluation.plots import COLORS, new_figure, save
from training.paper.probes import PROBES
from training.paper.zero_shot_runs import zero_shot, zero_shot_series


@dataclasses.dataclass(frozen=True)
class _Options:
    output: str = option("folder for result.json, and zero_shot.svg of a run")
    preset: str | None = option(f"{PRESET_HELP}; or else", None)
    run: tuple[str, ...] = option("folder of a pre-training with snapshots, or of each leg", ())
    beside: str | None = option("result.json of another run, to plot dashed", None, metavar="FILE")
    probes: str = option("of " + ", ".join(PROBES), "cola,sst2,race_middle,dprd")
    limit: int | None = option("use this many examples of each probe (default: all)", None)

    def __post_init__(self) -> None:
        if (self.preset is None) != bool(self.run):
            raise ValueError("Give either --preset or --run.")
        check_at_least_one(self, "limit")


def plot_series(results: Sequence[dict[str, Any]], path: str | os.PathLike[str]) -> None:
    """Plots the relative scores of probes against passes over the corpus.

    Args:
        results: from `zero_shot_series`, the first solid, the second dashed.
        path: of the plot.
    """
    figure, (axes,) = new_figure()
    names = results[0]["names"]
    for result, style in zip(results, ("-", "--")):
        kind = "LSTM" if result["decoder"] == "LSTMBackbone" else "Transformer"
        passes = [entry["step"] * result["passes_per_update"] for entry in result["series"]]
        for name, color in zip(names, COLORS):
            shares = [entry["probes"][name]["relative"] for entry in result["series"]]
            axes.plot(passes, shares, style, color=color, label=f"{name}, {kind}")
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.set_xlim(left=0)
    axes.set(xlabel="passes over the corpus", ylabel="0: guessing, 1: the best before the paper")
    axes.legend(edgecolor="none", ncols=len(results))
    save(figure, path)


def _read_beside(path: str, names: Sequence[str]) -> dict[str, Any]:
    """The result of another run, which must have what is plotted."""
    result = read_json(path)
    missing = [name for name in names if name not in result.get("names", ())]
    if missing or "passes_per_update" not in result:
        raise ValueError(
            f"{path} is no result of training.paper.zero_shot --run with the probes {list(names)}."
        )
    return result


@program(
    "training.paper.zero_shot",
    interrupted="Interrupted; the same command goes on from the last probe or snapshot.",
)
def main(options: _Options, data: DataOptions) -> None:
    """Test what a language model, or each snapshot of its training, knows without fine-tuning."""
    names, output, limit = options.probes.split(","), pathlib.Path(options.output), options.limit
    if options.run:
        beside = [] if options.beside is None else [_read_beside(options.beside, names)]
        found = zero_shot_series(
            options.run, names, output / "result.json", **vars(data), limit=limit
        )
        plot_series([found, *beside], output / "zero_shot.svg")
        return
    assert options.preset is not None
    scores = zero_shot(options.preset, names, output / "result.json", **vars(data), limit=limit)
    for name, found in scores.items():
        print(f"{name}: {found['score']:.4f}, relative {found['relative']:.3f}")


if __name__ == "__main__":
    sys.exit(main())

"""Tests what a language model knows without fine-tuning (section 5 of the paper).

    gpt1 zero_shot --preset gpt1_tiny_books --data-dir DIR --output DIR
    gpt1 zero_shot --run RUN --data-dir DIR --output DIR

Each probe asks which text the model finds likelier. DIR/result.json has the scores, also on a scale
from guessing (0) to the best single model before the paper (1). RUN is a finished pre-training with
snapshots (`gpt1 pretrain --snapshot-every N`). Where runs went on from one another, give all of
them, in order. All snapshots are scored. DIR/zero_shot.svg plots the scaled scores against passes
over the corpus, as the paper's figure 2 does against updates; `--beside` adds another run, such as
the LSTM's, dashed. After an interruption, the same command goes on.
"""

import dataclasses
import pathlib
import sys

from gpt1_keras.cli import check_at_least_one, option, program
from gpt1_keras.presets import PRESET_HELP, PRESET_NAMES
from training.datasets.data_options import DataOptions
from training.paper.probes import PROBES, find_probe
from training.runs.saved_work import newest_saved


@dataclasses.dataclass(frozen=True)
class _Options:
    output: str = option("folder for result.json, and zero_shot.svg of a run")
    preset: str | None = option(f"{PRESET_HELP}; or give --run", None, name=PRESET_NAMES)
    run: tuple[str, ...] = option(
        "folder of a pre-training with snapshots; before it, those of the runs it went on from", ()
    )
    beside: str | None = option("result.json of another run, to plot dashed", None, metavar="FILE")
    probes: str = option("some of " + ", ".join(PROBES), "cola,sst2,race_middle,dprd")
    limit: int | None = option("use this many examples of each probe (default: all)", None)

    def __post_init__(self) -> None:
        if (self.preset is None) != bool(self.run):
            raise ValueError("Give either --preset or --run.")
        check_at_least_one(self, "limit")
        for name in self.probes.split(","):
            find_probe(name)


@program("training.paper.zero_shot", resumable=newest_saved)
def main(options: _Options, data: DataOptions) -> None:
    """Test what a language model, or each snapshot of its training, knows without fine-tuning."""
    from training.paper.zero_shot_runs import plot_series, read_beside, zero_shot, zero_shot_series

    names, output = options.probes.split(","), pathlib.Path(options.output)
    arguments = names, output / "result.json", data, options.limit
    if options.run:
        beside = [] if options.beside is None else [read_beside(options.beside, names)]
        found = zero_shot_series(options.run, *arguments)
        plot_series([found, *beside], output / "zero_shot.svg")
        return
    assert options.preset is not None  # where there is no run; see `_Options`
    scores = zero_shot(options.preset, *arguments)
    for name, found in scores.items():
        print(f"{name}: {found['score']:.4f}, relative {found['relative']:.3f}")


if __name__ == "__main__":
    sys.exit(main())

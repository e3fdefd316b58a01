"""Plots the perplexity of a pre-training run against its updates.

    gpt1 plot_pretraining --run DIR --ngrams FILE.json --output FILE.svg

DIR is the folder of a run of `gpt1 pretrain`, finished or still running. FILE.json is what
`gpt1 ngrams` writes. The same version of matplotlib makes the same bytes of the same
files.
"""

import dataclasses
import sys

from gpt1_keras.cli import option, program


@dataclasses.dataclass(frozen=True)
class _Options:
    run: str = option("folder of a run of gpt1 pretrain")
    output: str = option("the plot: FILE.svg or FILE.png")
    ngrams: str | None = option("scores of gpt1 ngrams, to plot as lines", None)


@program("training.paper.plot_pretraining")
def main(options: _Options) -> None:
    """Plot the perplexity of a pre-training run against its updates."""
    from training.paper.perplexity_plot import plot_pretraining

    plot_pretraining(**vars(options))


if __name__ == "__main__":
    sys.exit(main())

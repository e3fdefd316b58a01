"""Shows how much pre-training helps with few and with many labels.

    gpt1 learning_curve --tasks sst2 --preset NAME --data-dir DIR --output DIR

It fine-tunes on 100, 300, ... and all labels of each data set, from the preset and from random
weights, with several seeds, and scores the trivial baselines on the same samples. DIR gets
learning_curve.svg and learning_curve.md, with medians and ranges. Each run is a folder of DIR/runs,
as `gpt1 finetune` writes it, without its preset. After an interruption, the same command goes
on, also with more labels, tasks or seeds. As evidence, DIR gets scores.csv and predictions/, as
`gpt1 report` writes them.
"""

import sys

from gpt1_keras.cli import program
from training.datasets.data_options import DataOptions
from training.paper.grid_options import CurveOptions, GridOptions
from training.runs.saved_work import newest_saved


@program("training.paper.learning_curve", resumable=newest_saved)
def main(shared: GridOptions, options: CurveOptions, data: DataOptions) -> None:
    """Fine-tune on more and more labels, with and without pre-training, and plot the scores."""
    from training.paper.learning_curve_runs import curve_grid, learning_curve

    print(learning_curve(curve_grid(shared, options, data), shared.output, data))


if __name__ == "__main__":
    sys.exit(main())

"""Runs the paper's ablations: its table 5, and the left of its figure 2.

    gpt1 ablate --tasks sst2,cola --preset NAME --data-dir DIR --output DIR

It fine-tunes on each data set, with each seed, in each variant: in full, without the auxiliary loss
and without pre-training (`--variants` picks some); with `--lstm PRESET`, from an LSTM that was
pre-trained in the same way; with `--layers`, from the embeddings and the first 0, 1, ... blocks,
with fresh weights in the other blocks.
Each run is a folder of DIR/runs, as `gpt1 finetune` writes it. DIR/baselines has the trivial
baselines on the same examples. After an interruption, the same command goes on. DIR gets the tables
and evidence of `gpt1 report`, and with `--layers` transfer.svg.
"""

import sys

from gpt1_keras.cli import program
from training.datasets.data_options import DataOptions
from training.paper.grid_options import AblationOptions, GridOptions
from training.runs.saved_work import newest_saved


@program("training.paper.ablate", resumable=newest_saved)
def main(shared: GridOptions, options: AblationOptions, data: DataOptions) -> None:
    """Run the paper's ablations, and put them into its tables and figure."""
    from training.paper.grids import ablate, ablation_grid

    print(ablate(ablation_grid(shared, options), shared.output, data))


if __name__ == "__main__":
    sys.exit(main())

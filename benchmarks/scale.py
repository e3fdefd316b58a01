"""Estimates the time and price of the paper's pre-training on GPUs: docs/scale.md's table.

    python -m benchmarks.scale --share 0.4 --euros 2.5

The time of an update is its FLOPs at a share of the GPUs' peak, plus the time to sum the gradients
over all GPUs, which a ring passes around twice.
"""

import argparse
import dataclasses

from benchmarks.harness.measured_models import SIZES
from benchmarks.harness.program import table
from training.evaluation.throughput import flops_per_token

PARAMETERS = 116_537_088  # with the three special tokens
LENGTH = 512
WINDOWS = 64  # a batch in the paper


@dataclasses.dataclass(frozen=True)
class Machines:
    """The GPUs.

    Attributes:
        peak: dense FLOPs per second of a GPU.
        share: share of the peak that a training step reaches.
        node_bandwidth: bytes per second between the GPUs of a node of 8.
        network_bandwidth: bytes per second between nodes.
        euros: price of a GPU hour.
    """

    peak: float = 989e12
    share: float = 0.4
    node_bandwidth: float = 300e9
    network_bandwidth: float = 50e9
    euros: float = 2.5

    def step_seconds(self, gpus, windows):
        """Returns the seconds of an update on a batch of `windows` windows."""
        flops = windows * LENGTH * flops_per_token(SIZES["paper"], LENGTH)
        bandwidth = self.node_bandwidth if gpus <= 8 else self.network_bandwidth
        passed_on = 2 * (gpus - 1) / gpus * 4 * PARAMETERS  # gradients are float32
        return flops / (gpus * self.share * self.peak) + passed_on / bandwidth


def estimate(machines, tokens):
    """Returns the table's rows: GPUs, windows per update, updates, ms per update, hours, euros."""
    rows = []
    for gpus, windows in ((1, WINDOWS), (8, WINDOWS), (64, WINDOWS), (64, 8 * WINDOWS)):
        updates = -(-tokens // (windows * LENGTH))
        seconds = machines.step_seconds(gpus, windows)
        hours = updates * seconds / 3600
        rows.append(
            [
                str(gpus),
                str(windows),
                f"{updates:,}",
                f"{1000 * seconds:.1f}",
                f"{hours:.1f}",
                f"{hours * gpus * machines.euros:,.0f}",
            ]
        )
    return rows


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description="What the paper's pre-training would take on GPUs, by arithmetic.",
    )
    parser.add_argument("--tokens", type=float, default=1e11, help="in all (default: 1e11)")
    for field in dataclasses.fields(Machines):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", type=float, default=field.default,
            help="default: %(default)g",
        )  # fmt: skip
    options = vars(parser.parse_args())
    tokens = int(options.pop("tokens"))
    print(f"{tokens * flops_per_token(SIZES['paper'], LENGTH):.3g} FLOPs in all\n")
    header = ["GPUs", "windows per update", "updates", "ms per update", "hours", "euros"]
    print(table(header, estimate(Machines(**options), tokens)))


if __name__ == "__main__":
    main()

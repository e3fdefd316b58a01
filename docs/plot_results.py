"""Plots the README's picture from figures of results.md: what pre-training on books gains.

    python docs/plot_results.py

It writes results.svg beside itself. tests/docs/test_results.py finds its figures in results.md.
"""

import pathlib

from matplotlib.axes import Axes

from training.evaluation.plots import BLUE, ORANGE, new_figure, save

PERPLEXITY = {"trigram": 90.9, "LSTM,\n1 pass": 90.2, "GPT-1,\n2.8 passes": 52.3}
ACCURACY = {  # labelled sentences: with pre-training, without
    "240\nquickstart": (91.3, 65.0),
    "1,000\nSST-2": (67.7, 58.0),
    "10,000\nSST-2": (81.1, 74.5),
    "67,349\nSST-2": (85.7, 77.9),
}
WIDTH = 0.38


def plot_perplexity(axes: Axes) -> None:
    bars = axes.barh(list(PERPLEXITY), list(PERPLEXITY.values()), color=["0.7", "0.7", BLUE])
    axes.bar_label(bars, fmt="%.1f", padding=4)
    axes.set_title("Perplexity of 19 unseen novels\n(lower is better)")
    axes.set_xlim(0, 105)


def plot_accuracy(axes: Axes) -> None:
    positions = range(len(ACCURACY))
    for side, (name, color) in enumerate(
        [("pre-trained on books", BLUE), ("from random weights", ORANGE)]
    ):
        bars = axes.bar(
            [position + (side - 0.5) * WIDTH for position in positions],
            [scores[side] for scores in ACCURACY.values()],
            WIDTH,
            color=color,
            label=name,
        )
        axes.bar_label(bars, fmt="%.1f", padding=2)
    axes.set_xticks(positions, list(ACCURACY))
    axes.axhline(50, color="0.4", linestyle="--", linewidth=1, label="guessing")
    axes.set_title("Sentiment accuracy, %, by number of\nlabelled sentences (higher is better)")
    axes.set_ylim(0, 124)
    axes.set_yticks(range(0, 101, 25))
    axes.legend(edgecolor="none", loc="upper center", ncols=3, fontsize="small")


def main() -> None:
    figure, (left, right) = new_figure(10, 3.6, columns=2)
    plot_perplexity(left)
    plot_accuracy(right)
    save(figure, pathlib.Path(__file__).with_name("results.svg"))


if __name__ == "__main__":
    main()

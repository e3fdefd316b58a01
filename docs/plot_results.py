"""Plots the README's picture from figures of results.md: what pre-training on books gains.

    python docs/plot_results.py

It writes results.svg beside itself. tests/docs/test_results.py finds its figures in results.md.
"""

import pathlib

from matplotlib.axes import Axes

from training.evaluation.plots import BLUE, ORANGE, new_figure, save

GREY, LIGHT_BLUE = "0.7", "#85bcdc"
PERPLEXITY = {
    "trigram": (90.9, GREY),
    "LSTM, 1 pass": (90.2, GREY),
    "GPT-1, 1 pass": (60.0, LIGHT_BLUE),
    "GPT-1, 2.8 passes": (52.3, LIGHT_BLUE),
    "GPT-1, version 4": (44.6, BLUE),
}
SIDES = {"pre-trained on books": BLUE, "bag of words": GREY, "from random weights": ORANGE}
ACCURACY = {  # of SST-2, by labelled sentences; random weights at their better rate
    "100": (55.6, 55.2, 53.0),
    "1,000": (69.3, 66.5, 58.0),
    "10,000": (80.8, 79.1, 74.5),
    "67,349": (86.8, 82.1, 77.9),
}
WIDTH = 0.27


def plot_perplexity(axes: Axes) -> None:
    scores, colors = zip(*PERPLEXITY.values())
    bars = axes.barh(list(PERPLEXITY), scores, color=colors)
    axes.bar_label(bars, fmt="%.1f", padding=4)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_title("Perplexity of 19 unseen novels\n(lower is better)")
    axes.set_xlim(0, 105)


def plot_accuracy(axes: Axes) -> None:
    for side, (name, color) in enumerate(SIDES.items()):
        bars = axes.bar(
            [group + (side - 1) * WIDTH for group in range(len(ACCURACY))],
            [scores[side] for scores in ACCURACY.values()],
            WIDTH,
            color=color,
            label=name,
        )
        axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=7.5)
    axes.set_xticks(range(len(ACCURACY)), list(ACCURACY))
    axes.axhline(50.9, color="0.3", linestyle="--", linewidth=1, label="the more frequent label")
    axes.grid(axis="x", visible=False)
    axes.set_title("Accuracy on SST-2, %, by number of\nlabelled sentences (higher is better)")
    axes.set_ylim(0, 100)
    axes.legend(edgecolor="none", loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)


def main() -> None:
    figure, (left, right) = new_figure(10, 4.4, columns=2)
    plot_perplexity(left)
    plot_accuracy(right)
    save(figure, pathlib.Path(__file__).with_name("results.svg"))


if __name__ == "__main__":
    main()

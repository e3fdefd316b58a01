"""Plots the README's picture from figures of results.md: what pre-training on books gains.

    python docs/plot_results.py

It writes results.svg beside itself. tests/docs/test_results.py finds its figures in results.md.
"""

import pathlib

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from training.evaluation.plots import BLUE, ORANGE, PURPLE, new_figure, save

GREY, LIGHT_BLUE = "0.7", "#85bcdc"
PERPLEXITY = {
    "trigram": (90.9, GREY),
    "LSTM, 1 pass": (90.2, GREY),
    "tiny, 1 pass": (60.0, LIGHT_BLUE),
    "tiny, 2.8 passes": (52.3, LIGHT_BLUE),
    "gpt1_tiny_books": (44.6, BLUE),
    "gpt1_small_books": (35.3, PURPLE),
}
SENTENCES = (100, 1000, 3000, 10_000, 67_349)
ACCURACY = {  # of SST-2; random weights at their better rate
    "gpt1_small_books": (62.2, 76.1, 78.3, 83.0, 88.4),
    "gpt1_tiny_books": (62.2, 73.5, 76.3, 80.8, 86.8),
    "bag of words": (55.2, 66.5, 75.0, 79.1, 82.1),
    "random weights": (53.0, 58.0, 58.0, 74.5, 77.9),
}
STYLES = {
    "gpt1_small_books": {"color": PURPLE, "marker": "D"},
    "gpt1_tiny_books": {"color": BLUE, "marker": "o"},
    "bag of words": {"color": "0.35", "linestyle": "--"},
    "random weights": {"color": ORANGE, "marker": "s"},
}
OFFSETS = {"gpt1_small_books": 7, "gpt1_tiny_books": -16}  # of the figures at their points


def plot_perplexity(axes: Axes) -> None:
    scores, colors = zip(*PERPLEXITY.values())
    bars = axes.barh(list(PERPLEXITY), scores, color=colors)
    axes.bar_label(bars, fmt="%.1f", padding=4)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_title("Perplexity of 19 unseen novels\n(lower is better)")
    axes.set_xlim(0, 105)


def plot_accuracy(axes: Axes) -> None:
    for name, scores in ACCURACY.items():
        axes.plot(SENTENCES, scores, label=name, **STYLES[name])
        for point in zip(SENTENCES, scores) if name in OFFSETS else ():
            axes.annotate(
                f"{point[1]:.1f}",
                point,
                (0, OFFSETS[name]),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=STYLES[name]["color"],
                bbox={"color": "white", "alpha": 0.8, "pad": 0.5},
            )
    axes.axhline(50.9, color="0.35", linestyle=":", label="the more frequent label")
    axes.set_xscale("log")
    axes.set_xticks(SENTENCES, [f"{count:,}" for count in SENTENCES])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title("Accuracy on SST-2, %, by number of\nlabelled sentences (higher is better)")
    axes.set_ylim(45, 95)
    axes.legend(edgecolor="none", loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)


def main() -> None:
    figure, (left, right) = new_figure(10, 4.4, columns=2)
    plot_perplexity(left)
    plot_accuracy(right)
    save(figure, pathlib.Path(__file__).with_name("results.svg"))


if __name__ == "__main__":
    main()

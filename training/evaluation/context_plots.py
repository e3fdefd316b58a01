"""Plots of how a language model uses its context, once or over a pre-training."""

from collections.abc import Sequence
from typing import Any

import matplotlib.ticker
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from training.evaluation.plots import BLUE, ORANGE, new_figure, shown

_MOST_CURVES = 5  # of a run, from light to dark


def plot_measurement(use: dict[str, Any], title: str) -> Figure:
    """Plots what `ContextUse.measure` returns."""
    figure, (left, right) = new_figure(width=10, columns=2)
    _plot_positions(left, use, color=BLUE, marker="o")
    passage = use["repeated_passage"]
    bars = right.bar(
        ["first", "second"], [passage["first"], passage["second"]], color=[BLUE, ORANGE]
    )
    right.bar_label(bars, fmt="%.2f")
    right.set(
        ylabel="loss of a token, nats",
        title=f"a passage of {passage['tokens']} tokens, twice (gap: {passage['gap']:.2f})",
    )
    figure.suptitle(shown(title))
    return figure


def plot_series(entries: Sequence[dict[str, Any]], title: str) -> Figure:
    """Plots the measurements of a pre-training.

    Args:
        entries: of its history, at least one, each with `step` and `context_use`.
    """
    figure, (left, right) = new_figure(width=10, columns=2)
    chosen = np.linspace(0, len(entries) - 1, min(_MOST_CURVES, len(entries))).round().astype(int)
    for number, index in enumerate(chosen, start=1):
        entry = entries[index]
        label = f"after {entry['step']:,} updates"
        _plot_positions(
            left, entry["context_use"], color=BLUE, alpha=number / len(chosen), label=label
        )
    left.legend(edgecolor="none", loc="upper right")
    steps = [entry["step"] for entry in entries]
    passages = [entry["context_use"]["repeated_passage"] for entry in entries]
    for name, color in (("first", BLUE), ("second", ORANGE)):
        losses = [passage[name] for passage in passages]
        right.plot(steps, losses, color=color, marker="o", markersize=3, label=f"{name} time")
    right.set(
        xlabel="updates",
        ylabel="loss of a token, nats",
        title=f"a passage of {passages[-1]['tokens']} tokens, twice "
        f"(last gap: {passages[-1]['gap']:.2f})",
    )
    right.set_xlim(left=0)
    right.legend(edgecolor="none")
    figure.suptitle(shown(title))
    return figure


def _plot_positions(axes: Axes, use: dict[str, Any], **style: Any) -> None:
    """Plots the loss by position, with an error bar of one standard error."""
    bins = use["loss_by_position"]
    centers = [(each["from"] + each["to"]) / 2 for each in bins]
    errors = [each["standard_error"] or 0.0 for each in bins]
    axes.errorbar(centers, [each["loss"] for each in bins], errors, capsize=2, **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
    axes.set(
        xlabel="position in the context", ylabel="loss of a token, nats", title="loss by position"
    )

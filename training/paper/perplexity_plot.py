"""The plot of a pre-training: perplexity against updates, beside n-gram models."""

import os
import pathlib
from typing import Any

import matplotlib.ticker
import numpy as np
from matplotlib.figure import Figure

from gpt1_keras.files import read_json
from training.evaluation.plots import BLUE, GREEN, ORANGE, check_format, new_figure, save, shown


def plot_pretraining(
    run: str | os.PathLike[str],
    output: str | os.PathLike[str],
    ngrams: str | os.PathLike[str] | None = None,
) -> None:
    """Plots a run.

    Args:
        output: path of the plot, which ends in `.svg` or `.png`.
    """
    check_format(output)
    history, options = _read_run(pathlib.Path(run))
    baselines = {}
    if ngrams is not None:
        expected = {"corpus_fingerprint": options["corpus_fingerprint"]}
        baselines = _read_ngrams(ngrams, expected | _scored_tokens(history))
    save(make_figure(history, baselines, options["config"]), output)


def make_figure(history: list[dict[str, Any]], baselines: dict[str, float], title: str) -> Figure:
    """Makes the plot.

    Args:
        history: entries of `step`, `loss` and, where it was computed, `validation_perplexity`.
        baselines: dict from the names of up to two models to their perplexities.
    """
    figure, (axes,) = new_figure()
    steps = np.array([entry["step"] for entry in history])
    training = np.exp([entry["loss"] for entry in history])
    # A loss is the mean over the updates since the previous entry, so it belongs to their middle.
    axes.plot(
        (steps + np.append(0, steps[:-1])) / 2,
        training,
        color=ORANGE,
        marker="s",
        markersize=4,
        label=f"training (last: {training[-1]:,.1f})",
    )
    scored = [entry for entry in history if "validation_perplexity" in entry]
    if scored:
        axes.plot(
            [entry["step"] for entry in scored],
            [entry["validation_perplexity"] for entry in scored],
            color=BLUE,
            marker="o",
            markersize=4,
            label=f"validation (last: {scored[-1]['validation_perplexity']:,.1f})",
        )
    for (name, perplexity), style, color in zip(
        baselines.items(), ((0, (6, 3)), (0, (1, 1.5))), (GREEN, "black")
    ):
        axes.axhline(perplexity, linestyle=style, color=color, label=f"{name} ({perplexity:,.1f})")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axes.set_xlim(left=0)
    axes.set(xlabel="updates", ylabel="perplexity of a token (log scale)", title=shown(title))
    axes.legend(edgecolor="none")
    return figure


def _read_run(folder: pathlib.Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    path = folder / "history.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} has no history.json, so there is no pre-training to plot."
        )
    history, options = read_json(path, list), read_json(folder / "options.json")
    if not history or not all({"step", "loss"} <= entry.keys() for entry in history):
        raise ValueError(f"{path} holds no pre-training: expected entries with `step` and `loss`.")
    return history, options


def _scored_tokens(history: list[dict[str, Any]]) -> dict[str, int]:
    """Returns the number of validation tokens that a run scored, if it scored any."""
    key = "validation_tokens"
    return {key: history[-1][key]} if key in history[-1] else {}


def _read_ngrams(path: str | os.PathLike[str], expected: dict[str, Any]) -> dict[str, float]:
    scores = read_json(path)
    names = {"unigram_perplexity": "unigram", "trigram_perplexity": "trigram, Kneser-Ney"}
    if not {*expected, *names} <= scores.keys():
        raise ValueError(f"{path} holds no scores of n-grams, as gpt1 paper ngrams writes.")
    for key, value in expected.items():
        if scores[key] != value:
            raise ValueError(f"{path} has the {key} {scores[key]}, and the run has {value}.")
    return {name: scores[key] for key, name in names.items()}

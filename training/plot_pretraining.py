"""Draws the perplexity of a pre-training run against its updates.

    python -m training.plot_pretraining --run DIR --ngrams FILE.json --output FILE.svg

DIR is what `training.pretrain` keeps, finished or still running, and FILE.json what
`training.ngrams` writes. One version of matplotlib draws the same files the same, byte for byte.
"""

import argparse
import json
import pathlib
import sys

import matplotlib.ticker
import numpy as np

from training.evaluation.plots import BLUE, GREEN, ORANGE, check_format, new_axes, save


def plot_pretraining(run, output, ngrams=None):
    """Draws a run.

    Args:
        run: path of the folder of a pre-training.
        output: path of the picture, which ends in `.svg` or `.png`.
        ngrams: optional path of the scores of n-gram models on the same corpus.

    Raises:
        FileNotFoundError: the run has no history yet, or the scores are not there.
        ValueError: an unknown format, a damaged file, or scores on another corpus.
    """
    check_format(output)
    history, options = _read_run(pathlib.Path(run))
    baselines = {}
    if ngrams is not None:
        expected = {"corpus_fingerprint": options["corpus_fingerprint"]}
        baselines = _read_ngrams(ngrams, expected | _scored_tokens(history))
    save(make_figure(history, baselines, options["config"]), output)


def make_figure(history, baselines, title):
    """The picture, a `matplotlib.figure.Figure`.

    Args:
        history: list of dicts of `step`, `loss` and, where it was scored, `validation_perplexity`.
        baselines: dict from up to two models' names to their perplexities.
        title: str.
    """
    figure, axes = new_axes()
    steps = np.array([entry["step"] for entry in history])
    training = np.exp([entry["loss"] for entry in history])
    # A loss is the mean over the updates since the entry before, and so belongs to their middle.
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
    axes.set(xlabel="updates", ylabel="perplexity of a token (log scale)", title=title)
    axes.legend(edgecolor="none")
    return figure


def _read_run(folder):
    """The history and the options of a run."""
    path = folder / "history.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no history.json, so no pre-training to draw.")
    history, options = _read(path), _read(folder / "options.json")
    if not history or not all({"step", "loss"} <= entry.keys() for entry in history):
        raise ValueError(f"{path} holds no pre-training: expected entries with `step` and `loss`.")
    return history, options


def _scored_tokens(history):
    """How many tokens of the validation split a run looked at, where it did."""
    key = "validation_tokens"
    return {key: history[-1][key]} if key in history[-1] else {}


def _read_ngrams(path, expected):
    """The perplexities to draw as lines, by the models' names."""
    scores = _read(pathlib.Path(path))
    names = {"unigram_perplexity": "unigram", "trigram_perplexity": "trigram, Kneser-Ney"}
    if not {*expected, *names} <= scores.keys():
        raise ValueError(f"{path} holds no scores of n-grams, as training.ngrams writes.")
    for key, value in expected.items():
        if scores[key] != value:
            raise ValueError(f"{path} has the {key} {scores[key]}, and the run has {value}.")
    return {name: scores[key] for key, name in names.items()}


def _read(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from None


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m training.plot_pretraining",
        description="Draw the perplexity of a pre-training run against its updates.",
    )
    parser.add_argument("--run", required=True, help="folder of a run of training.pretrain")
    parser.add_argument("--ngrams", help="scores of training.ngrams, to draw as lines")
    parser.add_argument("--output", required=True, help="the picture: FILE.svg or FILE.png")
    options = parser.parse_args(arguments)
    try:
        plot_pretraining(options.run, options.output, options.ngrams)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

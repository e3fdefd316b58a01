"""The table and the plot of a search."""

import pathlib
from collections.abc import Sequence
from typing import Any

import matplotlib.ticker

from gpt1_keras.files import write_text
from training.evaluation.plots import BLUE, ORANGE, new_figure, save
from training.runs.run_folder import Run

_LOGARITHMIC = ("learning_rate",)


def write_report(run: Run, names: Sequence[str]) -> None:
    """Writes search.md and search.svg."""
    write_text(run.folder / "search.md", as_markdown(run.history, names))
    plot(run.history, names, run.folder / "search.svg")


def as_markdown(trials: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Formats trials as a table, the best first."""
    titles = [name.replace("_", " ") for name in names]
    lines = [
        f"| trial | {' | '.join(titles)} | median | scores | best epochs | seconds |",
        "|---:" * (len(names) + 5) + "|",
    ]
    numbered = list(enumerate(trials, start=1))
    numbered.sort(key=lambda pair: (pair[1]["median"] is None, -(pair[1]["median"] or 0.0)))
    for number, trial in numbered:
        scores = ", ".join(f"{100 * score:.1f}" for score in trial["scores"] or ())
        median = "diverged" if trial["median"] is None else f"{100 * trial['median']:.1f}"
        cells = [str(number), *(f"{trial[name]:.4g}" for name in names), median, scores]
        cells += [", ".join(map(str, trial["best_epochs"])), f"{trial['seconds']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot(trials: Sequence[dict[str, Any]], names: Sequence[str], path: pathlib.Path) -> None:
    """Plots scores against each hyper-parameter: each seed a dot, the medians larger."""
    figure, panels = new_figure(width=3.2 * len(names), height=3.6, columns=len(names))
    finished = [trial for trial in trials if trial["median"] is not None]
    for axes, name in zip(panels, names):
        for trial in finished:
            scores = [100 * score for score in trial["scores"]]
            axes.plot([trial[name]] * len(scores), scores, ".", color=BLUE, alpha=0.4)
        medians = [100 * trial["median"] for trial in finished]
        axes.plot([trial[name] for trial in finished], medians, "o", color=BLUE)
        if finished:
            best = max(finished, key=lambda trial: trial["median"])
            axes.plot([best[name]], [100 * best["median"]], "o", color=ORANGE)
        if name in _LOGARITHMIC:
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())  # they would overlap
        axes.set(xlabel=name.replace("_", " "))
    panels[0].set(ylabel="validation score")
    save(figure, path)

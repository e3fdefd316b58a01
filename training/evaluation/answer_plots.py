"""Plots of a model's answers against the labels: a confusion matrix, and a scatter of scores."""

import os
from collections.abc import Sequence

import numpy as np
from sklearn.metrics import confusion_matrix

from training.evaluation.plots import BLUE, new_figure, save, shown

_MOST_CLASSES = 30  # more could not be read
_MOST_CHARACTERS = 30  # of a name


def plot_confusion(
    labels: np.ndarray,
    answers: np.ndarray,
    class_names: Sequence[str],
    path: str | os.PathLike[str],
) -> None:
    """Plots a confusion matrix: counts, coloured by their share of the row's label.

    Of more than 30 classes it shows those that most errors have to do with.

    Args:
        labels, answers: int `[examples]`, indices of classes.
    """
    matrix = confusion_matrix(labels, answers, labels=range(len(class_names)))
    errors = matrix * (1 - np.eye(len(matrix), dtype=int))
    shown = np.argsort(-(errors.sum(axis=0) + errors.sum(axis=1)), kind="stable")
    shown = np.sort(shown[:_MOST_CLASSES])
    shares = matrix / np.maximum(1, matrix.sum(axis=1, keepdims=True))
    matrix, shares = matrix[np.ix_(shown, shown)], shares[np.ix_(shown, shown)]
    names = [_shortened(class_names[number]) for number in shown]
    size = 3 + 0.45 * len(names)
    figure, (axes,) = new_figure(size, size)
    axes.grid(False)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(matrix):
        if count:
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count}", ha="center", va="center", color=color, fontsize=9)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="answer", ylabel="label")
    if len(class_names) > len(names):
        axes.set_title(f"the {len(names)} of {len(class_names)} classes with most errors")
    save(figure, path)


def plot_scores(labels: np.ndarray, answers: np.ndarray, path: str | os.PathLike[str]) -> None:
    """Plots predicted scores against labels.

    Args:
        labels, answers: float `[examples]`.
    """
    figure, (axes,) = new_figure(5, 5)
    ends = [min(labels.min(), answers.min()), max(labels.max(), answers.max())]
    axes.plot(ends, ends, "--", color="0.4", label="as it should be")
    # As an image, because an .svg with a mark for each of many examples would take megabytes.
    axes.plot(labels, answers, ".", color=BLUE, alpha=0.3, label="an example", rasterized=True)
    axes.set(xlabel="label", ylabel="predicted score", aspect="equal")
    axes.legend(frameon=False, loc="upper left")
    save(figure, path)


def _shortened(name: str) -> str:
    """Returns the beginning of a name."""
    return shown(name if len(name) <= _MOST_CHARACTERS else f"{name[: _MOST_CHARACTERS - 1]}…")

"""Reports on a model's answers: figures by class, a confusion matrix, and its errors."""

import io
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sklearn.metrics
from sklearn.metrics import confusion_matrix

from gpt1_keras.examples import Examples, as_str
from gpt1_keras.files import csv_writer, read_json, write_json, write_text
from gpt1_keras.tasks.classify import named_outputs
from gpt1_keras.tasks.task import Task
from training.evaluation.calibration import measure, plot_probabilities
from training.evaluation.plots import BLUE, new_figure, save, shown
from training.evaluation.predictions import predictions_of, read_predictions

_MOST_CLASSES = 30  # more could not be read
_MOST_CHARACTERS = 30  # of a name

# In the folder of a run.
REPORT, FIGURES, ERRORS = "report.txt", "report.json", "errors.csv"
CONFUSION, RELIABILITY, SCATTER = "confusion.svg", "reliability.svg", "scores.svg"
_MOST_LINES = 40  # of a report that programs print
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the start of a formula


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
    return shown(name if len(name) <= _MOST_CHARACTERS else f"{name[: _MOST_CHARACTERS - 1]}…")


def write_report(
    folder: str | os.PathLike[str], model: Task, examples: Examples, outputs: np.ndarray
) -> str:
    """Writes report.txt, report.json and errors.csv.

    - Classes: scikit-learn's report by class.
    - Classes and choices: in report.json, how far the probabilities, as the model is calibrated,
      can be trusted.
    - Scores: the mean and the largest errors.

    errors.csv has the examples that are wrong, the most confident first; of scores, all of them,
    the largest errors first. It begins with the mark by which spreadsheets know UTF-8, and a text
    that a spreadsheet would compute as a formula gets an apostrophe before it.

    Args:
        folder: path; earlier files of these names are replaced.
        examples: all labelled.
        outputs: of the model, from `predict_outputs`.

    Returns:
        The content of report.txt.
    """
    folder, labels, predictions = pathlib.Path(folder), examples.labels, predictions_of(outputs)
    named = named_outputs(model, examples.texts, outputs)
    content: dict[str, Any]
    if model.calibration is None:
        found = [f"{score:g}" for score in named["score"]]
        content = _measure_scores(labels, predictions)
        text = "".join(
            f"{name.replace('_', ' ')}: {value:.4f}\n" for name, value in content.items()
        )
        wrong = np.argsort(-np.abs(predictions - labels), kind="stable")
        columns = {"error": [f"{predictions[each] - labels[each]:.4f}" for each in wrong]}
    else:
        found = list(map(safe_cell, named["label"]))
        scores = np.array([max(each) for each in named["scores"]])
        wrong = np.flatnonzero(predictions != labels)
        wrong = wrong[np.argsort(-scores[wrong], kind="stable")]
        columns = {"score": [f"{scores[each]:.4f}" for each in wrong]}
        right = len(labels) - len(wrong)
        content, text = {"accuracy": right / len(labels)}, f"{right} of {len(labels)} are right\n"
        if examples.class_names is not None:
            text, content = _measure_classes(labels, predictions, examples.class_names)
        content["reliability"] = measure(np.asarray(model.probabilities(outputs)), labels)
    write_rows(folder / ERRORS, examples, found, wrong, columns)
    write_json(folder / FIGURES, content)
    write_text(folder / REPORT, text)
    return text


def plot_report(folder: str | os.PathLike[str], class_names: Sequence[str] | None) -> None:
    """Plots what `write_report` and `write_predictions` have written into a folder.

    - Classes: the confusion matrix, confusion.svg.
    - Classes and choices: the reliability diagram, reliability.svg.
    - Scores: they and the labels, scores.svg.
    """
    folder = pathlib.Path(folder)
    rows = [row for row in read_predictions(folder) or () if row["label"] is not None]
    labels, answers = (np.array([row[name] for row in rows]) for name in ("label", "answer"))
    reliability = read_json(folder / FIGURES).get("reliability")
    if reliability is None:
        plot_scores(labels, answers, folder / SCATTER)
        return
    plot_probabilities(reliability, folder / RELIABILITY)
    if class_names is not None:
        plot_confusion(labels, answers, class_names, folder / CONFUSION)


def read_report(folder: str | os.PathLike[str]) -> str:
    """Returns the content of report.txt, or where it is if it is long."""
    path = pathlib.Path(folder, REPORT)
    text = path.read_text(encoding="utf-8")
    return text if text.count("\n") <= _MOST_LINES else f"{path} has the report by class."


def _measure_classes(
    labels: np.ndarray, answers: np.ndarray, names: Sequence[str]
) -> tuple[str, dict[str, Any]]:
    numbers = [str(number) for number in range(len(names))]
    text, content = (
        sklearn.metrics.classification_report(
            *(labels, answers),
            labels=range(len(names)),
            target_names=target_names,
            digits=3,
            zero_division=0,
            output_dict=as_dict,
        )
        # In the dict, a class named "accuracy" would be lost.
        for target_names, as_dict in ((names, False), (numbers, True))
    )
    classes = {name: content.pop(number) for name, number in zip(names, numbers)}
    return text, {**content, "classes": classes}


def _measure_scores(labels: np.ndarray, answers: np.ndarray) -> dict[str, float]:
    return {
        "mean_absolute_error": float(sklearn.metrics.mean_absolute_error(labels, answers)),
        "root_mean_squared_error": float(sklearn.metrics.root_mean_squared_error(labels, answers)),
        "largest_error": float(sklearn.metrics.max_error(labels, answers)),
    }


def write_rows(
    path: pathlib.Path,
    examples: Examples,
    predictions: Sequence[str],
    positions: np.ndarray,
    columns: Mapping[str, Sequence[str]],
) -> None:
    """Writes some examples as CSV for people, with their labels and predictions.

    Args:
        predictions: of all examples, as `safe_cell` returns names.
        positions: of those to write.
        columns: of these, more values by name.
    """
    fields = list(examples.texts)
    texts = [_strings(examples.texts[field][positions]) for field in fields]
    labels = [_named(examples, each) for each in positions]
    file = io.StringIO()
    write = csv_writer(file)
    write([["number", *fields, "label", "prediction", *columns]])
    found = (labels, [predictions[each] for each in positions], *columns.values())
    write(zip(examples.indices[positions], *texts, *found, strict=True))
    write_text(path, "\N{ZERO WIDTH NO-BREAK SPACE}" + file.getvalue())


def _strings(column: np.ndarray) -> Iterator[str]:
    for text in column:
        yield _cell(text) if isinstance(text, bytes) else " | ".join(map(_cell, text))


def _named(examples: Examples, position: int) -> str:
    label = examples.labels[position]
    if examples.class_names is not None:
        return safe_cell(examples.class_names[label])
    if "choices" in examples.texts:
        return _cell(examples.texts["choices"][position][label])
    return f"{label:g}"


def _cell(text: bytes) -> str:
    return safe_cell(as_str(text))


def safe_cell(text: str) -> str:
    """Returns a text that a spreadsheet shows instead of computing it."""
    return f"'{text}" if text.startswith(_FORMULA) else text

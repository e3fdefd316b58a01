"""Reports of many runs: the paper's tables and plots with our results beside the published ones,
and evidence by which others can check them.
"""

import dataclasses
import io
import os
import pathlib
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes

from gpt1_keras.files import check_writable, csv_writer, write_text
from training.evaluation.baselines import MAJORITY, OVERLAP, TFIDF
from training.evaluation.plots import COLORS, new_figure, save
from training.evaluation.predictions import read_predictions
from training.paper.gathered_results import Results, gather, metrics_of
from training.paper.published_results import FULL, OURS, TABLES, Column, Table, small_models

_GREYS = {MAJORITY: "0.85", TFIDF: "0.65", OVERLAP: "0.45"}  # of the baselines
_PREFIX = "baseline: "
_MISSING = "\N{EN DASH}"
_SCORES, _PREDICTIONS = "scores.csv", "predictions"


def report(folders: Iterable[str | os.PathLike[str]], output: str | os.PathLike[str]) -> str:
    """Writes the paper's tables for which there are results; returns them in Markdown."""
    results, folder = Results(gather(folders)), pathlib.Path(output)
    check_writable(folder)
    parts = []
    for name, table in TABLES.items():
        columns, rows = fill(table, results)
        if not any(count for row in rows for count in row.seeds or ()):
            continue
        parts.append(as_markdown(table.title, columns, rows) + note_limits(table, results))
        plot_table(table.title, columns, rows, folder / f"{name}.svg")
    write_evidence([results], folder)
    text = "\n".join(parts)
    write_text(folder / "tables.md", text)
    return text


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        color: in the plot; published rows are paler.
        scores: for each column a score, in percent, or None.
        seeds: in our rows, the number of seeds that each score is the median of; elsewhere None.
        extremes: in our rows, the seeds' least and greatest score, or None for a single seed;
            elsewhere None.
        is_compared: whether the average is over columns that this row must have; it is False for
            others' models and for baselines.
    """

    name: str
    color: str
    scores: list[float | None]
    seeds: list[int] | None = None
    extremes: list[tuple[float, float] | None] | None = None
    is_compared: bool = True

    def cell(self, column: int) -> str:
        """Returns a score as it is shown, with its extremes."""
        extremes = None if self.extremes is None else self.extremes[column]
        return show(self.scores[column], extremes)


def columns_of(table: Table, results: Results) -> list[Column]:
    """Returns the paper's columns, and those of `table.beside` that have a result."""
    datasets = {dataset for _, dataset in results.runs}
    return [*table.columns, *(each for each in table.beside if datasets.issuperset(each.datasets))]


def fill(table: Table, results: Results) -> tuple[list[str], list[Row]]:
    """Fills a table.

    Returns:
        `(names, rows)`: names of columns, and rows. Where a table compares our variants, its first
        column is the average over the columns that the paper's rows and ours have.
    """
    columns = columns_of(table, results)
    names = [f"{column.name} ({column.metric})" for column in columns]
    colors = dict(zip(table.published, COLORS))
    rows = [
        Row(name, color, [column.published.get(name) for column in columns])
        for name, color in colors.items()
    ]
    others = [small_models(column) for column in columns]
    for name, color in zip(others[0], COLORS[len(colors) :]):
        scores = [other[name] for other in others]
        if any(score is not None for score in scores):
            rows.append(Row(name, color, scores, is_compared=False))
    rows += [
        _row(_PREFIX + name, color, name, columns, results, is_compared=False)
        for name, color in _GREYS.items()
    ]
    for variant, published in zip(table.variants, table.published[-len(table.variants) :]):
        name = OURS if table.variants == (FULL,) else f"{OURS}, {variant}"
        rows.append(_row(name, colors[published], variant, columns, results))
    full = rows[-len(table.variants)]  # this row stays, even without a score
    rows = [row for row in rows if row is full or row.seeds is None or any(row.seeds)]
    compared = [row for row in rows if row.is_compared]
    shared = [i for i in range(len(names)) if all(row.scores[i] is not None for row in compared)]
    if len(table.variants) > 1 and shared:
        names = [f"average of {len(shared)}", *names]
        rows = [_with_average(row, shared) for row in rows]
    return names, rows


def _row(
    name: str,
    color: str,
    variant: str,
    columns: Sequence[Column],
    results: Results,
    is_compared: bool = True,
) -> Row:
    return Row(
        name,
        color,
        [results.median(variant, column.datasets, column.metric) for column in columns],
        [results.seeds(variant, column.datasets) for column in columns],
        [results.extremes(variant, column.datasets, column.metric) for column in columns],
        is_compared,
    )


def _with_average(row: Row, columns: Sequence[int]) -> Row:
    scores = [score for i in columns if (score := row.scores[i]) is not None]
    average = statistics.mean(scores) if len(scores) == len(columns) else None
    seeds = row.seeds and [min(row.seeds[i] for i in columns), *row.seeds]
    extremes = row.extremes and [None, *row.extremes]
    return dataclasses.replace(row, scores=[average, *row.scores], seeds=seeds, extremes=extremes)


def as_markdown(title: str, columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Formats a table for people to read; missing cells are dashes."""
    lines = [f"## {title}", "", "| | " + " | ".join(columns) + " |"]
    lines.append("|---" + "|---:" * len(columns) + "|")
    for row in rows:
        shown = [row.cell(column) for column in range(len(columns))]
        lines.append(f"| {row.name} | " + " | ".join(shown) + " |")
    ours = [row for row in rows if row.seeds and row.is_compared]
    seeds = describe_seeds(count for row in ours for count in row.seeds or ())
    lines += ["", f"Ours: medians of {seeds}, of validation splits; the published: test splits."]
    if any(row.seeds and not row.is_compared for row in rows):
        lines.append("Baselines: validation splits, after the same examples as ours.")
    return "\n".join([*lines, ""])


def note_limits(table: Table, results: Results) -> str:
    """Says which columns show runs on a part of the examples; empty if none does."""
    limits = {
        column.name: f"{column.name} on {results.limits[dataset]:,}"
        for column in columns_of(table, results)
        for dataset in column.datasets[:1]
        if dataset in results.limits
    }
    shown = ", ".join(limits.values())
    return f"Ours were trained on some of the examples: {shown}.\n" if limits else ""


def show(score: float | None, extremes: tuple[float, float] | None) -> str:
    """Returns a median with its extremes, or a dash."""
    if score is None:
        return _MISSING
    if extremes is None or extremes[0] == extremes[1]:
        return f"{score:.1f}"
    return f"{score:.1f} ({extremes[0]:.1f}\N{EN DASH}{extremes[1]:.1f})"


def describe_seeds(counts: Iterable[int]) -> str:
    """Says how many seeds the medians are of, and what the figures beside them are."""
    found = {count for count in counts if count} or {0}
    if found == {1}:
        return "1 seed"
    several = " to ".join(map(str, sorted({min(found), max(found)})))
    return f"{several} seeds (lowest\N{EN DASH}highest)"


def plot_table(
    title: str, columns: Sequence[str], rows: Sequence[Row], path: str | os.PathLike[str]
) -> None:
    """Plots the columns of a table that have a score of ours, a panel for each.

    A row of the table is a bar in each panel, with the range of its seeds. Published rows have pale
    colours, our rows of the same kind full ones, and baselines are grey.
    """
    ours = [row for row in rows if row.seeds and row.is_compared]
    shown = [i for i in range(len(columns)) if any(row.scores[i] is not None for row in ours)]
    across = max(1, min(3, len(shown)))
    down = max(1, -(-len(shown) // across))
    height = down * (0.9 + 0.3 * len(rows))
    figure, panels = new_figure(2.8 * across + 2.4, height, across, down)
    for index, axes in enumerate(panels):
        if index >= len(shown):
            axes.set_visible(False)
            continue
        _plot_column(axes, shown[index], rows)
        axes.set_title(columns[shown[index]], fontsize="medium")
        if index % across:
            axes.tick_params(labelleft=False)
    figure.suptitle(title)
    save(figure, path)


def _plot_column(axes: Axes, column: int, rows: Sequence[Row]) -> None:
    for index, row in enumerate(rows):
        score = row.scores[column]
        extremes = None if row.extremes is None else row.extremes[column]
        spread = None
        if score is not None and extremes is not None:
            spread = [[score - extremes[0]], [extremes[1] - score]]
        axes.barh(
            index,
            score or 0.0,
            color=row.color,
            alpha=0.4 if row.seeds is None else 1.0,
            xerr=spread,
            error_kw={"linewidth": 0.8},
        )
        end = max(score or 0.0, extremes[1] if extremes else 0.0)
        text = _MISSING if score is None else f"{score:.1f}"
        axes.annotate(text, (end, index), (3, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.grid(axis="y", visible=False)
    axes.invert_yaxis()
    axes.margins(x=0.2)


def write_evidence(several: Sequence[Results], folder: str | os.PathLike[str]) -> None:
    """Writes scores.csv and predictions/TASK.csv: all scores, and the predictions of one seed."""
    _write_scores(several, folder)
    _write_answers(several, folder)


def _write_scores(several: Sequence[Results], folder: str | os.PathLike[str]) -> None:
    rows = [
        [dataset, variant, result["train_examples"], seed, metric, value, result.get("seconds", "")]
        for results in several
        for (variant, dataset), runs in sorted(results.runs.items())
        for seed, (_, result) in sorted(runs.items())
        for metric, value in metrics_of(result).items()
    ]
    header = ["task", "variant", "labels", "seed", "metric", "score", "seconds"]
    _write_csv(pathlib.Path(folder, _SCORES), [header, *rows])


def _write_answers(several: Sequence[Results], folder: str | os.PathLike[str]) -> None:
    """Writes predictions/TASK.csv: a line for each example of the validation split.

    Its columns are the example's number, its label, and the predictions of each variant's lowest
    seed. These columns are named after the variant, the number of labels that it learned from, and
    the seed. Runs without predictions.jsonl are left out.
    """
    columns: dict[str, dict[str, list[Any]]] = {}
    for results in several:
        for (variant, dataset), runs in sorted(results.runs.items()):
            seed = min(runs)
            path, result = runs[seed]
            found = read_predictions(pathlib.Path(path).parent)
            if found is None:
                continue
            table = columns.setdefault(dataset, {})
            for name in ("number", "label"):
                values = [_short(row[name]) for row in found]
                if table.setdefault(name, values) != values:
                    raise ValueError(
                        f"The predictions beside {path} have other examples than those of "
                        f"{dataset} beside it: expected the same {name} in each line."
                    )
            title = f"{variant}, {result['train_examples']} labels, seed {seed}"
            table[title] = [_short(row["answer"]) for row in found]
    for dataset, table in columns.items():
        path = pathlib.Path(folder, _PREDICTIONS, f"{dataset}.csv")
        _write_csv(path, [list(table), *zip(*table.values())])


def _short(value: Any) -> Any:
    """Returns a label or a prediction; scores have 5 decimals, more than any correlation shown."""
    return round(value, 5) if isinstance(value, float) else value


def _write_csv(path: pathlib.Path, rows: Sequence[Sequence[Any]]) -> None:
    text = io.StringIO()
    csv_writer(text)(rows)
    write_text(path, text.getvalue())

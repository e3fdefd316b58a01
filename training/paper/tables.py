"""The paper's tables with our results beside the published ones: Markdown, CSV and plots."""

import csv
import dataclasses
import io
import os
import statistics
from collections.abc import Sequence

from training.evaluation.baselines import MAJORITY, OVERLAP, TFIDF
from training.evaluation.plots import COLORS, new_figure, save
from training.paper.published_results import FULL, OURS, Table
from training.paper.results import Results

_BASELINES = {MAJORITY: "0.85", TFIDF: "0.65", OVERLAP: "0.45"}  # and their shades of grey
_PREFIX = "baseline: "
_MISSING = "\N{EN DASH}"


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        name: its label.
        scores: for each column a score, in percent, or None.
        seeds: of our rows, how many seeds each score is the median of; else None.
        is_baseline: whether a row of ours is that of a baseline.
    """

    name: str
    scores: list[float | None]
    seeds: list[int] | None = None
    is_baseline: bool = False


def fill(table: Table, results: Results) -> tuple[list[str], list[Row]]:
    """Fills a table.

    Returns:
        `(columns, rows)`: names of columns, and rows. Where a table compares our variants, its
        first column is the average over the columns that all rows have.
    """
    columns = [f"{column.name} ({column.metric})" for column in table.columns]
    rows = [
        Row(name, [column.published[name] for column in table.columns]) for name in table.published
    ]
    for variant in (*_BASELINES, *table.variants):
        is_baseline = variant in _BASELINES
        name = OURS if table.variants == (FULL,) else f"{OURS}, {variant}"
        name = _PREFIX + variant if is_baseline else name
        scores = [results.median(variant, column.tasks) for column in table.columns]
        seeds = [results.seeds(variant, column.tasks) for column in table.columns]
        if any(seeds) or variant == FULL:
            rows.append(Row(name, scores, seeds, is_baseline))
    compared = [row for row in rows if not row.is_baseline]
    shared = [i for i in range(len(columns)) if all(row.scores[i] is not None for row in compared)]
    if len(table.variants) > 1 and shared:
        columns = [f"average of {len(shared)}", *columns]
        rows = [_with_average(row, shared) for row in rows]
    return columns, rows


def _with_average(row: Row, columns: Sequence[int]) -> Row:
    """The row, before it the average over some columns, if it has them all."""
    scores = [score for i in columns if (score := row.scores[i]) is not None]
    average = statistics.mean(scores) if len(scores) == len(columns) else None
    seeds = row.seeds and [min(row.seeds[i] for i in columns), *row.seeds]
    return dataclasses.replace(row, scores=[average, *row.scores], seeds=seeds)


def as_markdown(title: str, columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Formats a table for people to read; missing cells are dashes."""
    lines = [f"## {title}", "", "| | " + " | ".join(columns) + " |"]
    lines.append("|---" + "|---:" * len(columns) + "|")
    for row in rows:
        shown = [_MISSING if score is None else f"{score:.1f}" for score in row.scores]
        lines.append(f"| {row.name} | " + " | ".join(shown) + " |")
    ours = [row for row in rows if row.seeds and not row.is_baseline]
    counts = {count for row in ours for count in row.seeds or () if count} or {0}
    count = (
        "1 seed"
        if counts == {1}
        else f"{' to '.join(map(str, sorted({min(counts), max(counts)})))} seeds"
    )
    lines += ["", f"Ours: medians of {count}, of validation splits; the paper's: test splits.", ""]
    if any(row.is_baseline for row in rows):
        lines.insert(-1, "Baselines: validation splits, after the same examples as ours.")
    return "\n".join(lines)


def note_limits(table: Table, results: Results) -> str:
    """A line that says which columns are of runs on some of the examples alone, if any are."""
    limits = [
        f"{column.name} on {results.limits[task]:,}"
        for column in table.columns
        for task in column.tasks[:1]
        if task in results.limits
    ]
    return f"Ours were trained on some of the examples: {', '.join(limits)}.\n" if limits else ""


def as_csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Formats a table as CSV, a line for each cell that has a score."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "column", "score", "seeds"])
    for row in rows:
        for i, (column, score) in enumerate(zip(columns, row.scores)):
            if score is not None:
                seeds = row.seeds[i] if row.seeds else ""
                writer.writerow([row.name, column, f"{score:.2f}", seeds])
    return text.getvalue()


def plot_table(
    title: str, columns: Sequence[str], rows: Sequence[Row], path: str | os.PathLike[str]
) -> None:
    """Plots a table as bars.

    Published rows are in pale colours, ours of the same kind in full, and baselines in grey.
    """
    figure, (axes,) = new_figure(width=1.6 * len(columns) + 2)
    width = 0.8 / len(rows)
    published = COLORS[: sum(row.seeds is None for row in rows)]
    ours = sum(row.seeds is not None and not row.is_baseline for row in rows)
    baselines = [_BASELINES[row.name.removeprefix(_PREFIX)] for row in rows if row.is_baseline]
    colors = [*published, *baselines, *published[len(published) - ours :]]
    for index, (row, color) in enumerate(zip(rows, colors, strict=True)):
        bars = axes.bar(
            [column + width * (index + 0.5) - 0.4 for column in range(len(columns))],
            [score or 0.0 for score in row.scores],
            width,
            color=color,
            alpha=0.4 if row.seeds is None else 1.0,
            label=row.name,
        )
        shown = [_MISSING if score is None else f"{score:.0f}" for score in row.scores]
        axes.bar_label(bars, shown, fontsize=7)
    axes.set_xticks(range(len(columns)), [column.replace(" (", "\n(") for column in columns])
    axes.set(ylabel="score", title=title)
    figure.legend(loc="outside lower center", ncols=4, edgecolor="none")
    save(figure, path)

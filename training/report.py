"""Puts fine-tuned results into the paper's tables 2 to 5, beside the published ones.

    python -m training.report --runs DIR --output DIR

All result.json of `training.finetune` below `--runs` are gathered. `--output` gets tables.md, and
for each table a .csv and a .svg. Ours are medians over seeds, of validation splits; the published
ones are of test splits.
"""

import argparse
import csv
import dataclasses
import io
import json
import pathlib
import statistics
import sys

from gpt1_keras.files import atomic_path
from training.evaluation.plots import COLORS, new_axes, save
from training.paper.published_results import FULL, OURS, TABLES

_MISSING = "\N{EN DASH}"


class Results:
    """Scores of fine-tuned models by variant, data set and seed.

    Attributes:
        scores: dict from `(variant, task)` to a dict from seed to a score in hundredths.

    Raises:
        ValueError: two results of the same variant, data set and seed, or a variant of several
            presets.
    """

    def __init__(self, results):
        self.scores, presets, places = {}, {}, {}
        for place, result in results:
            variant = variant_of(result)
            cell = variant, result["task"], result["seed"]
            if cell in places:
                raise ValueError(
                    f"Two results of {variant}, {cell[1]}, seed {cell[2]}: {places[cell]} and "
                    f"{place}. Give runs of one kind with --runs."
                )
            places[cell] = place
            presets.setdefault(variant, set()).add(result["preset"] or result["config"])
            self.scores.setdefault(cell[:2], {})[cell[2]] = 100 * result["score"]
        for variant, found in presets.items():
            if len(found) > 1:
                raise ValueError(f"The runs of {variant} began from several models: {found}.")

    def seeds(self, variant, tasks):
        """How many seeds a column has; 0 where one of its tasks has none."""
        return min(len(self.scores.get((variant, task), ())) for task in tasks)

    def median(self, variant, tasks):
        """The mean of the tasks' medians over seeds; None where one has no score."""
        if not self.seeds(variant, tasks):
            return None
        medians = [statistics.median(self.scores[variant, task].values()) for task in tasks]
        return statistics.mean(medians)


def variant_of(result):
    """Which row of table 5, or point of figure 2, a result of `training.finetune` is.

    Returns:
        `"full"`, `"no auxiliary loss"`, `"no pre-training"`, `"LSTM"` or `"N blocks"`; of several
        ablations at once, all their names.
    """
    parts = []
    if result["decoder"] == "LSTMBackbone":
        parts.append("LSTM")
    if result["preset"] is None or result["transfer"] == "none":
        parts.append("no pre-training")
    elif result["transfer"] != "all":
        parts.append(f"{result['transfer']} blocks")
    if not result["lm_coefficient"]:
        parts.append("no auxiliary loss")
    return ", ".join(parts) or FULL


def gather(folders):
    """The results of `training.finetune` on the paper's data sets below some folders.

    Returns:
        list of `(path, result)`.

    Raises:
        FileNotFoundError: there are none.
    """
    found = []
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("result.json")):
            result = json.loads(path.read_text())
            if result.get("task") and "best_epoch" in result:
                found.append((path, result))
    if not found:
        raise FileNotFoundError(
            f"No results of training.finetune in {', '.join(map(str, folders))}."
        )
    return found


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        name: str.
        scores: list of a score, in hundredths, or None for each column.
        seeds: of ours, list of how many each score is the median of; else None.
    """

    name: str
    scores: list
    seeds: list | None = None


def fill(table, results):
    """The rows of a table.

    Args:
        table: `training.paper.published_results.Table`.
        results: `Results`.

    Returns:
        `(columns, rows)`: names, and list of `Row`. Where a table compares ours with ours, its
        first column is the average over the columns that all rows have.
    """
    columns = [f"{column.name} ({column.metric})" for column in table.columns]
    rows = [
        Row(name, [column.published[name] for column in table.columns]) for name in table.published
    ]
    for variant in table.variants:
        name = OURS if table.variants == (FULL,) else f"{OURS}, {variant}"
        scores = [results.median(variant, column.tasks) for column in table.columns]
        seeds = [results.seeds(variant, column.tasks) for column in table.columns]
        if any(seeds) or variant == FULL:
            rows.append(Row(name, scores, seeds))
    shared = [i for i in range(len(columns)) if all(row.scores[i] is not None for row in rows)]
    if len(table.variants) > 1 and shared:
        columns = [f"average of {len(shared)}", *columns]
        rows = [
            dataclasses.replace(
                row,
                scores=[statistics.mean(row.scores[i] for i in shared), *row.scores],
                seeds=row.seeds and [min(row.seeds[i] for i in shared), *row.seeds],
            )
            for row in rows
        ]
    return columns, rows


def as_markdown(title, columns, rows):
    """A table for people to read; missing cells are dashes."""
    lines = [f"## {title}", "", "| | " + " | ".join(columns) + " |"]
    lines.append("|---" + "|---:" * len(columns) + "|")
    for row in rows:
        shown = [_MISSING if score is None else f"{score:.1f}" for score in row.scores]
        lines.append(f"| {row.name} | " + " | ".join(shown) + " |")
    counts = {count for row in rows for count in row.seeds or () if count}
    count = (
        "1 seed"
        if counts == {1}
        else f"{' to '.join(map(str, sorted({min(counts), max(counts)})))} seeds"
    )
    lines += ["", f"Ours: medians of {count}, of validation splits; the paper's: test splits.", ""]
    return "\n".join(lines)


def as_csv(columns, rows):
    """The same, a line for each cell that is there."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "column", "score", "seeds"])
    for row in rows:
        for column, score, seeds in zip(columns, row.scores, row.seeds or [""] * len(columns)):
            if score is not None:
                writer.writerow([row.name, column, f"{score:.2f}", seeds])
    return text.getvalue()


def plot_table(title, columns, rows, path):
    """The same, as bars: a published row in a pale colour, ours of its kind in the full one."""
    figure, axes = new_axes(width=1.6 * len(columns) + 2)
    width = 0.8 / len(rows)
    published = sum(row.seeds is None for row in rows)
    for number, row in enumerate(rows):
        kind = number if row.seeds is None else number - (len(rows) - published)
        bars = axes.bar(
            [column + width * (number + 0.5) - 0.4 for column in range(len(columns))],
            [score or 0.0 for score in row.scores],
            width,
            color=COLORS[kind],
            alpha=0.4 if row.seeds is None else 1.0,
            label=row.name,
        )
        shown = [_MISSING if score is None else f"{score:.0f}" for score in row.scores]
        axes.bar_label(bars, shown, fontsize=7)
    axes.set_xticks(range(len(columns)), [column.replace(" (", "\n(") for column in columns])
    axes.set(ylabel="score", title=title)
    figure.legend(loc="outside lower center", ncols=4, edgecolor="none")
    save(figure, path)


def report(folders, output):
    """Writes all tables that there is a result of ours for.

    Args:
        folders: paths, below which results are.
        output: path of the folder to write to.

    Returns:
        str, the tables in Markdown.

    Raises:
        FileNotFoundError, ValueError: as `gather` and `Results`.
    """
    results, output = Results(gather(folders)), pathlib.Path(output)
    parts = []
    for name, table in TABLES.items():
        columns, rows = fill(table, results)
        if not any(count for row in rows for count in row.seeds or ()):
            continue
        parts.append(as_markdown(table.title, columns, rows))
        _write(output / f"{name}.csv", as_csv(columns, rows))
        plot_table(table.title, columns, rows, output / f"{name}.svg")
    text = "\n".join(parts)
    _write(output / "tables.md", text)
    return text


def _write(path, text):
    with atomic_path(path) as temporary:
        pathlib.Path(temporary).write_text(text, encoding="utf-8")


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m training.report",
        description="Put fine-tuned results into the paper's tables, beside the published ones.",
    )
    parser.add_argument("--runs", nargs="+", required=True, help="folders, below which results are")
    parser.add_argument("--output", required=True, help="folder for tables.md, .csv and .svg")
    options = parser.parse_args(arguments)
    try:
        print(report(options.runs, options.output))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

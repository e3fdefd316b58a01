"""Reports of many runs: the paper's tables, and evidence by which others can check them."""

import io
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from gpt1_keras.files import check_writable, csv_writer, write_text
from training.evaluation.predictions import read_predictions
from training.paper.gathered_results import Results, gather, metrics_of
from training.paper.published_results import TABLES
from training.paper.tables import as_markdown, fill, note_limits, plot_table

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


def write_evidence(several: Sequence[Results], folder: str | os.PathLike[str]) -> None:
    """Writes scores.csv and predictions/TASK.csv: all scores, and the predictions of one seed."""
    _write_scores(several, folder)
    _write_answers(several, folder)


def _write_scores(several: Sequence[Results], folder: str | os.PathLike[str]) -> None:
    """Writes scores.csv: a line for each run and metric."""
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

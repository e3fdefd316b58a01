"""What is kept of many runs so that others can check them: all scores, and one seed's answers."""

import csv
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from gpt1_keras.files import atomic_path
from training.evaluation.predictions import read_predictions
from training.paper.results import Results, metrics_of

SCORES, PREDICTIONS = "scores.csv", "predictions"


def write_scores(several: Sequence[Results], folder: str | os.PathLike[str]) -> None:
    """Writes scores.csv: a line for each run and metric.

    Args:
        several: one for each number of labels, or a single one.
        folder: path of the folder to write to.
    """
    rows = [
        [task, variant, result["train_examples"], seed, metric, value, result.get("seconds", "")]
        for results in several
        for (variant, task), runs in sorted(results.runs.items())
        for seed, (_, result) in sorted(runs.items())
        for metric, value in metrics_of(result).items()
    ]
    header = ["task", "variant", "labels", "seed", "metric", "score", "seconds"]
    _write_csv(pathlib.Path(folder, SCORES), [header, *rows])


def write_predictions(several: Sequence[Results], folder: str | os.PathLike[str]) -> None:
    """Writes predictions/TASK.csv: a line for each example of the validation split.

    Its columns are the example's number and label, and the answers of each variant's lowest seed,
    named after the variant, the number of labels that it learned from, and the seed. Runs without
    predictions.jsonl are left out.

    Args:
        several: one for each number of labels, or a single one.
        folder: path of the folder to write to.

    Raises:
        ValueError: the predictions of a task are not of the same examples.
    """
    columns: dict[str, dict[str, list[Any]]] = {}
    for results in several:
        for (variant, task), runs in sorted(results.runs.items()):
            seed = min(runs)
            path, result = runs[seed]
            found = read_predictions(pathlib.Path(path).parent)
            if found is None:
                continue
            table = columns.setdefault(task, {})
            for name in ("number", "label"):
                values = [_short(row[name]) for row in found]
                if table.setdefault(name, values) != values:
                    raise ValueError(
                        f"The predictions beside {path} have other examples than those of "
                        f"{task} beside it: expected the same {name} in each line."
                    )
            title = f"{variant}, {result['train_examples']} labels, seed {seed}"
            table[title] = [_short(row["answer"]) for row in found]
    for task, table in columns.items():
        path = pathlib.Path(folder, PREDICTIONS, f"{task}.csv")
        _write_csv(path, [list(table), *zip(*table.values())])


def _short(value: Any) -> Any:
    """A label or an answer; scores to five digits, more than any correlation is shown with."""
    return round(value, 5) if isinstance(value, float) else value


def _write_csv(path: pathlib.Path, rows: Sequence[Sequence[Any]]) -> None:
    with atomic_path(path) as temporary, open(temporary, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)

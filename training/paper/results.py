"""Results of fine-tuned models and baselines on the paper's data sets, by variant and seed."""

import os
import pathlib
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from gpt1_keras.files import read_json
from training.paper.published_results import FULL

# Options of `training.finetune` that all runs on a task must share for their scores to compare.
_SHARED = (
    *("limit_examples", "epochs", "batch_size", "learning_rate"),
    *("layer_decay", "class_weight", "lora"),
)


class Results:
    """Scores of fine-tuned models and of baselines by variant, task and seed.

    Args:
        results: of `(path, result)`, as `gather` returns them.

    Attributes:
        scores: dict from `(variant, task)` to a dict from seed to a score in percent; a baseline is
            a variant too.
        limits: dict from task to the number of examples that its runs were limited to, if any.

    Raises:
        ValueError: two results of the same variant, task and seed, a variant with several presets,
            or a task whose runs differ in what they were trained with.
    """

    def __init__(self, results: Iterable[tuple[Any, dict[str, Any]]]) -> None:
        self.scores: dict[tuple[str, str], dict[int, float]] = {}
        self.limits: dict[str, int] = {}
        presets: dict[str, set[str]] = {}
        paths: dict[tuple[str, str, int], Any] = {}
        trained_with: dict[str, tuple[Any, dict[str, Any]]] = {}
        baselines = []
        for path, result in results:
            variant = variant_of(result)
            cell = variant, result["task"], result["seed"]
            if cell in paths:
                raise ValueError(
                    f"Two results of {variant}, {cell[1]}, seed {cell[2]}: {paths[cell]} and "
                    f"{path}. Give runs of one kind with --runs."
                )
            paths[cell] = path
            if result.get("limit_examples") is not None:
                self.limits[cell[1]] = result["limit_examples"]
            self.scores.setdefault(cell[:2], {})[cell[2]] = 100 * result["score"]
            if "baseline" in result:
                baselines.append((path, result))
                continue
            _check_alike(trained_with.setdefault(cell[1], (path, result)), (path, result))
            presets.setdefault(variant, set()).add(result["preset"] or result["config"])
        for path, result in baselines:
            first = trained_with.get(result["task"], (path, result))
            _check_alike(first, (path, result), ("limit_examples",))
        for variant, found in presets.items():
            if len(found) > 1:
                raise ValueError(f"The runs of {variant} began from several models: {found}.")

    def seeds(self, variant: str, tasks: Sequence[str]) -> int:
        """Returns the number of seeds that all the tasks have at least."""
        return min(len(self.scores.get((variant, task), ())) for task in tasks)

    def median(self, variant: str, tasks: Sequence[str]) -> float | None:
        """Returns the mean of the tasks' medians over seeds; None if one has no score."""
        if not self.seeds(variant, tasks):
            return None
        medians = [statistics.median(self.scores[variant, task].values()) for task in tasks]
        return statistics.mean(medians)


def _check_alike(
    first: tuple[Any, dict[str, Any]],
    other: tuple[Any, dict[str, Any]],
    names: Sequence[str] = _SHARED,
) -> None:
    """Raises ValueError unless two results of a task may stand in one column."""
    for name in names:
        before, after = first[1].get(name), other[1].get(name)
        if before != after:
            raise ValueError(
                f"The runs on {first[1]['task']} differ in {name}: {before} in {first[0]}, and "
                f"{after} in {other[0]}. Give runs of one kind with --runs."
            )


def variant_of(result: dict[str, Any]) -> str:
    """Tells which row of table 5, or point of figure 2, a result of `training.finetune` is.

    Returns:
        the name of a baseline; or
        `"full"`, `"no auxiliary loss"`, `"no pre-training"`, `"LSTM"` or `"N blocks"`; of several
        ablations at once, all their names.
    """
    if "baseline" in result:
        return result["baseline"]
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


def gather(
    folders: Iterable[str | os.PathLike[str]],
) -> list[tuple[pathlib.Path, dict[str, Any]]]:
    """Finds all results of `training.finetune` and `training.baselines` below some folders.

    Of fine-tuning, those on the paper's data sets.

    Returns:
        list of `(path, result)`.

    Raises:
        FileNotFoundError: there are none.
    """
    folders = list(folders)
    found = []
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("result.json")):
            result = read_json(path)
            if result.get("task") and {"best_epoch", "baseline"} & result.keys():
                found.append((path, result))
    if not found:
        raise FileNotFoundError(
            f"No results of training.finetune or training.baselines in "
            f"{', '.join(map(str, folders))}."
        )
    return found

"""Results of fine-tuned models and baselines on the paper's data sets, by variant and seed."""

import os
import pathlib
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from gpt1_keras.files import read_json
from training.datasets.paper_datasets import find_dataset
from training.paper.published_results import FULL

# Options of `gpt1 finetune` that runs on a data set must share to be comparable.
_SHARED = (
    *("limit_examples", "epochs", "batch_size", "learning_rate"),
    *("layer_decay", "class_weight", "lora", "dropout", "dtype"),
)


class Results:
    """Scores of fine-tuned models and of baselines by variant, data set and seed.

    Attributes:
        runs: dict from `(variant, dataset)` to a dict from seed to `(path, result)`; a baseline is
            a variant too.
        limits: dict from data set to the number of examples that its runs were limited to, if any.

    Raises:
        ValueError: two results of the same variant, data set and seed; a variant with several
            presets; or a data set whose runs differ in what they were trained with.
    """

    def __init__(self, results: Iterable[tuple[Any, dict[str, Any]]]) -> None:
        self.runs: dict[tuple[str, str], dict[int, tuple[Any, dict[str, Any]]]] = {}
        self.limits: dict[str, int] = {}
        models: dict[str, set[str]] = {}
        trained_with: dict[str, tuple[Any, dict[str, Any]]] = {}
        baselines = []
        for path, result in results:
            variant, dataset, seed = variant_of(result), result["task"], result["seed"]
            runs = self.runs.setdefault((variant, dataset), {})
            if seed in runs:
                raise ValueError(
                    f"Two results of {variant}, {dataset}, seed {seed}: {runs[seed][0]} and "
                    f"{path}. Give runs of one kind with --runs."
                )
            runs[seed] = path, result
            if result.get("limit_examples") is not None:
                self.limits[dataset] = result["limit_examples"]
            if "baseline" in result:
                baselines.append((path, result))
                continue
            _check_alike(trained_with.setdefault(dataset, (path, result)), (path, result))
            models.setdefault(variant, set()).add(_began_from(result))
        for path, result in baselines:
            first = trained_with.get(result["task"], (path, result))
            _check_alike(first, (path, result), ("limit_examples",))
        for variant, found in models.items():
            if len(found) > 1:
                raise ValueError(
                    f"The runs of {variant} began from several models: {', '.join(sorted(found))}."
                )

    def scores(self, variant: str, dataset: str, metric: str | None = None) -> dict[int, float]:
        """Returns the scores by seed, in percent.

        Args:
            metric: one of the data set's; the first by default.
        """
        runs = self.runs.get((variant, dataset), {})
        return {seed: 100 * _score(result, metric) for seed, (_, result) in sorted(runs.items())}

    def seeds(self, variant: str, datasets: Sequence[str]) -> int:
        """Returns the least number of seeds that a data set has."""
        return min(len(self.runs.get((variant, dataset), ())) for dataset in datasets)

    def median(
        self, variant: str, datasets: Sequence[str], metric: str | None = None
    ) -> float | None:
        """Returns the mean of the data sets' medians over seeds; None if one has no score."""
        if not self.seeds(variant, datasets):
            return None
        return statistics.mean(
            statistics.median(self.scores(variant, dataset, metric).values())
            for dataset in datasets
        )

    def extremes(
        self, variant: str, datasets: Sequence[str], metric: str | None = None
    ) -> tuple[float, float] | None:
        """Returns the least and the greatest of the seeds' means over the data sets.

        Only seeds that all the data sets have count; None if there are fewer than two.
        """
        found = [self.scores(variant, dataset, metric) for dataset in datasets]
        shared = set.intersection(*map(set, found))
        means = [statistics.mean(scores[seed] for scores in found) for seed in shared]
        return (min(means), max(means)) if len(means) > 1 else None


def _score(result: dict[str, Any], metric: str | None) -> float:
    """Returns a result's score in a metric of its data set; of fine-tuning, the best epoch's."""
    if metric is None or metric == result["metric"]:
        return result["score"]
    return metrics_of(result)[metric]


def _began_from(result: dict[str, Any]) -> str:
    """Names the model that a run started from; a hash tells weights of one name apart."""
    if not result.get("preset_fingerprint"):
        return result["preset"] or result["config"]
    return f"{result['preset']} (weights {result['preset_fingerprint']})"


def metrics_of(result: dict[str, Any]) -> dict[str, float]:
    """Returns a result's score in each metric; of fine-tuning, the best epoch's."""
    if "baseline" in result:
        return result["metrics"]
    best = result["history"][result["best_epoch"] - 1]
    return {name: best[name] for name in find_dataset(result["task"]).metrics}


def _check_alike(
    first: tuple[Any, dict[str, Any]],
    other: tuple[Any, dict[str, Any]],
    names: Sequence[str] = _SHARED,
) -> None:
    """Raises ValueError unless two results of a data set may stand in one column."""
    for name in names:
        before, after = first[1].get(name), other[1].get(name)
        if before != after:
            raise ValueError(
                f"The runs on {first[1]['task']} differ in {name}: {before} in {first[0]}, and "
                f"{after} in {other[0]}. Give runs of one kind with --runs."
            )


def variant_of(result: dict[str, Any]) -> str:
    """Tells which row of table 5, or point of figure 2, a result of `gpt1 finetune` is.

    Returns:
        The name of a baseline; or `"full"`, `"no auxiliary loss"`, `"no pre-training"`, `"LSTM"` or
        `"N blocks"`; for several ablations at once, all their names.
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
    """Finds all results of `gpt1 finetune`, and of baselines beside them, below some folders.

    Runs on users' files are left out.
    """
    folders = list(folders)
    found = []
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("result.json")):
            result = read_json(path)
            if result.get("task") and {"best_epoch", "baseline"} & result.keys():
                found.append((path, result))
    if not found:
        raise FileNotFoundError(f"No results of gpt1 finetune in {', '.join(map(str, folders))}.")
    return found

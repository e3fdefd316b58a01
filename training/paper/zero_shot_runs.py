"""Zero-shot probes of a language model, and of all snapshots of its pre-training (section 5)."""

import json
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import gpt1_keras
from gpt1_keras.files import atomic_path, check_writable, read_json
from gpt1_keras.presets import find_preset, load_task
from training.datasets.tfds_builders import prepared_builder, read_split
from training.evaluation.likelihood import Scorer
from training.evaluation.metrics import METRICS, Metric
from training.paper.probes import Probe, ProbeExamples, find_probe
from training.runs.legs import check_legs

_SNAPSHOT = re.compile(r"(\d{8})\.weights\.h5")

# Of `(prefix, continuation)` pairs their scores, as `Scorer`.
_Score = Callable[[list[tuple[bytes, bytes]]], np.ndarray]


def zero_shot(
    preset: str | os.PathLike[str],
    names: Sequence[str],
    output: str | os.PathLike[str],
    data_dir: str | None = None,
    download: bool = False,
    limit: int | None = None,
) -> dict[str, dict[str, Any]]:
    """Runs probes on a model.

    Args:
        preset: name of a preset that ships, or path of a language model's preset.
        names: keys of `training.paper.probes.PROBES`.
        output: path of the file of scores; it is written after each probe, and those that it has
            are not run again.
        data_dir: as in `run_probe`, like `download` and `limit`.
        download: whether to download and prepare missing data sets.
        limit: how many examples of each probe to use; all by default.

    Returns:
        dict from name to what `run_probe` returns.

    Raises:
        FileNotFoundError: the preset or a data set does not exist.
        ValueError: an unknown probe, or `output` holds probes of something else.
        OSError: `output` cannot be written.
    """
    find_preset(preset)
    probes = _find_probes(names, data_dir, download)
    asked = {"preset": str(preset), "limit": limit}
    output = pathlib.Path(output)
    check_writable(output.parent)
    result = _read_result(output, asked, {"probes": {}})
    scorer = None
    for name in names:
        if name not in result["probes"]:
            scorer = scorer or Scorer(load_task(preset, gpt1_keras.GPT1CausalLM))
            result["probes"][name] = run_probe(scorer, probes[name], data_dir, download, limit)
            write_result(output, result)
    return {name: result["probes"][name] for name in names}


def zero_shot_series(
    runs: Sequence[str | os.PathLike[str]],
    names: Sequence[str],
    output: str | os.PathLike[str],
    data_dir: str | None = None,
    download: bool = False,
    limit: int | None = None,
) -> dict[str, Any]:
    """Runs probes on all snapshots of a pre-training, and on its final model.

    Args:
        runs: path of the run's folder; or, of a pre-training in legs, of each leg's, in order. Of
            all but the last leg, the snapshots before the rate decays are of the run that went on.
        names: keys of `training.paper.probes.PROBES`.
        output: path of the file of scores, from which an interrupted series resumes.
        data_dir: as in `run_probe`, like `download` and `limit`.
        download: whether to download and prepare missing data sets.
        limit: how many examples of each probe to use; all by default.

    Returns:
        dict of `run`, `names`, `limit`, `decoder`, `passes_per_update` (over the corpus), and
        `series`: a list of dicts of `step` and `probes`, in order.

    Raises:
        FileNotFoundError: the run, its snapshots or a data set does not exist.
        ValueError: an unknown probe, runs that are no legs of one pre-training, or `output` holds
            another series.
    """
    output, last = pathlib.Path(output), pathlib.Path(runs[-1])
    snapshots = _find_snapshots([pathlib.Path(run) for run in runs])
    probes = _find_probes(names, data_dir, download)
    check_writable(output.parent)
    lm = load_task(last / "preset", gpt1_keras.GPT1CausalLM)
    asked = {
        "run": [str(run) for run in runs],
        "names": list(names),
        "limit": limit,
        "decoder": type(lm.backbone).__name__,
        "passes_per_update": _passes_per_update(last),
    }
    result = _read_result(output, asked, {"series": []})
    scorer = Scorer(lm)
    done = {entry["step"] for entry in result["series"]}
    for step, weights in snapshots.items():
        if step in done:
            continue
        lm.backbone.load_weights(weights)
        scores = {
            name: run_probe(scorer, probe, data_dir, download, limit)
            for name, probe in probes.items()
        }
        result["series"].append({"step": step, "probes": scores})
        write_result(output, result)
        shown = ", ".join(f"{name} {found['score']:.4f}" for name, found in scores.items())
        print(f"step {step}: {shown}", flush=True)
    return result


def run_probe(
    scorer: _Score,
    probe: Probe,
    data_dir: str | None = None,
    download: bool = False,
    limit: int | None = None,
) -> dict[str, Any]:
    """Runs a probe.

    Args:
        scorer: `training.evaluation.likelihood.Scorer`.
        probe: what to ask.
        data_dir: folder of the prepared data sets; TensorFlow Datasets' own by default.
        download: whether to download and prepare a missing data set.
        limit: how many examples to use, from the first; all by default.

    Returns:
        dict of `score`; `relative`, its share of the way from chance (0) to the previous best (1);
        and `questions`, the number of examples.
    """
    examples = _load(probe, probe.split, data_dir, download).first(limit)
    scores = _score_choices(scorer, examples)
    metric = METRICS[probe.metric]
    if probe.threshold_split is None:
        predictions = np.array([np.argmax(choices) for choices in scores])
    else:
        known = _load(probe, probe.threshold_split, data_dir, download).first(limit)
        known_scores = np.concatenate(_score_choices(scorer, known))
        threshold = best_threshold(known_scores, known.labels, metric)
        predictions = (np.concatenate(scores) > threshold).astype(int)
    score = float(metric(examples.labels, predictions))
    relative = (score - probe.chance) / (probe.previous_best - probe.chance)
    return {"score": score, "relative": relative, "questions": len(predictions)}


def best_threshold(scores: np.ndarray, labels: np.ndarray, metric: Metric) -> float:
    """Finds the percentile of the scores that is the best threshold for predicting 1.

    A reconstruction: the paper does not say how it chose.

    Args:
        scores: float array `[texts]`.
        labels: int array `[texts]`, 0 or 1.
        metric: function of true and predicted labels.
    """
    candidates = np.quantile(scores, np.linspace(0.01, 0.99, 99))
    found = [metric(labels, (scores > candidate).astype(int)) for candidate in candidates]
    return candidates[int(np.argmax(found))]


def write_result(path: pathlib.Path, result: dict[str, Any]) -> None:
    """Writes a result as JSON."""
    with atomic_path(path) as temporary:
        pathlib.Path(temporary).write_text(json.dumps(result, indent=2) + "\n")


def _load(probe: Probe, split: str, data_dir: str | None, download: bool) -> ProbeExamples:
    return probe.read(read_split(prepared_builder(probe.dataset, data_dir, download), split))


def _score_choices(scorer: _Score, examples: ProbeExamples) -> list[np.ndarray]:
    """The scores of each example's choices."""
    counts = [len(choices) for choices in examples.choices]
    scores = scorer([pair for choices in examples.choices for pair in choices])
    return np.split(scores, np.cumsum(counts)[:-1])


def _find_snapshots(runs: Sequence[pathlib.Path]) -> dict[int, pathlib.Path]:
    """The files of weights of a pre-training by step, the final ones last."""
    *legs, last_run = runs
    last = _read_number(last_run, "steps")
    found: dict[int, pathlib.Path] = {}
    for leg in legs:
        shared = _shared_steps(leg, last_run)
        found |= {step: path for step, path in _snapshots(leg) if step <= shared}
    found |= dict(_snapshots(last_run))
    if not found:
        raise FileNotFoundError(f"{last_run} has no snapshots: it ran without --snapshot-every.")
    found.pop(last, None)
    return {**dict(sorted(found.items())), last: last_run / "preset" / "model.weights.h5"}


def _snapshots(run: pathlib.Path) -> list[tuple[int, pathlib.Path]]:
    matches = [(_SNAPSHOT.fullmatch(path.name), path) for path in (run / "snapshots").glob("*.h5")]
    return [(int(match[1]), path) for match, path in matches if match]


def _shared_steps(leg: pathlib.Path, last_run: pathlib.Path) -> int:
    """The updates before the rate decays in a leg, and in the last run, which went on from it."""
    if not (leg / "options.json").is_file():
        raise FileNotFoundError(f"{leg} is not a pre-training: it has no options.json.")
    both = [read_json(run / "options.json") for run in (leg, last_run)]
    check_legs(leg, *both)
    return min(options["steps"] - options["decay_steps"] for options in both)


def _passes_per_update(run: pathlib.Path) -> float:
    """How much of its corpus a finished pre-training reads in an update."""
    window, windows = _read_number(run, "sequence_length"), _read_number(run, "batch_size")
    return window * windows / _read_number(run, "train_tokens")


def _read_number(run: pathlib.Path, name: str) -> int:
    """A number in the result of a finished pre-training."""
    path = run / "result.json"
    if not path.is_file():
        raise FileNotFoundError(f"{run} is not a finished pre-training: it has no result.json.")
    number = read_json(path).get(name)
    if not isinstance(number, int) or number < 1:
        raise ValueError(f"{path} is damaged: expected the number of {name} in it.")
    return number


def _find_probes(names: Sequence[str], data_dir: str | None, download: bool) -> dict[str, Probe]:
    """The probes by name, once the data sets of all of them are known to be there."""
    probes = {name: find_probe(name) for name in names}
    for probe in probes.values():
        prepared_builder(probe.dataset, data_dir, download)
    return probes


def _read_result(
    path: pathlib.Path, asked: dict[str, Any], fresh: dict[str, Any]
) -> dict[str, Any]:
    """A result that has begun, or a new one."""
    if not path.is_file():
        return {**asked, "gpt1_keras": gpt1_keras.__version__, **fresh}
    result = read_json(path)
    for name, value in asked.items():
        if result.get(name) != value:
            raise ValueError(
                f"{path} holds another {'series' if 'series' in fresh else 'result'}: its {name} "
                f"is {result.get(name)}, not {value}."
            )
    missing = [name for name, value in fresh.items() if type(result.get(name)) is not type(value)]
    if missing:
        raise ValueError(f"{path} is damaged: expected {missing[0]} in it.")
    return result

"""Zero-shot probes of a language model, and of all snapshots of its pre-training (section 5)."""

import dataclasses
import os
import pathlib
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

import gpt1_keras
from gpt1_keras.files import check_writable, read_json, write_json
from gpt1_keras.presets import find_preset, load_task
from training.datasets.data_options import DEFAULT_DATA, DataOptions
from training.datasets.tfds import prepared_builder, read_race, read_split, resolve_pronoun
from training.evaluation.likelihood import Scorer
from training.evaluation.metrics import METRICS, Metric
from training.evaluation.plots import COLORS, new_figure, save
from training.paper.probes import Probe, find_probe
from training.runs.run_folder import shared_steps

Columns = dict[str, Any]

_SNAPSHOT = re.compile(r"(\d{8})\.weights\.h5")

# From `(prefix, continuation)` pairs to their scores, as `Scorer` returns them.
_Score = Callable[[list[tuple[bytes, bytes]]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class ProbeExamples:
    """The texts that a language model chooses from.

    Attributes:
        choices: for each example a list of `(prefix, continuation)`, bytes. The text with the
            likeliest continuation is predicted; or there is one text, which is likely or not.
        labels: int array `[examples]`: indices of the right choices; for single texts, 1 if the
            text should be likely, or 0.
    """

    choices: list[list[tuple[bytes, bytes]]]
    labels: np.ndarray

    def first(self, count: int | None) -> Self:
        """Returns the first examples, or all for None."""
        return dataclasses.replace(self, choices=self.choices[:count], labels=self.labels[:count])


def read_cola(columns: Columns) -> ProbeExamples:
    """Asks: is a sentence likely?"""
    return ProbeExamples([[(b"", text)] for text in columns["sentence"]], columns["label"])


def read_sst2(columns: Columns) -> ProbeExamples:
    """Asks: which word follows the sentence and "very"?"""
    words = (b"negative", b"positive")
    return ProbeExamples(
        [[(text + b" very", word) for word in words] for text in columns["sentence"]],
        columns["label"],
    )


def read_race_choices(columns: Columns) -> ProbeExamples:
    """Asks: which choice follows passage and question?"""
    fields = {"context": "article", "question": "questions", "choices": "options"}
    texts, labels = read_race(columns, fields)
    rows = zip(texts["context"], texts["question"], texts["choices"])
    return ProbeExamples(
        [
            [(b"%b %b" % (context, question), choice) for choice in choices]
            for context, question, choices in rows
        ],
        labels,
    )


def read_dprd(columns: Columns) -> ProbeExamples:
    """Asks: with which name, in place of the pronoun's first use, is the rest likelier?"""
    rows = zip(columns["sentence"], columns["pronoun"], columns["candidates"])
    choices = [
        [(before + name, after) for before, name, after in resolve_pronoun(*row)] for row in rows
    ]
    return ProbeExamples(choices, columns["label"])


# By the names that `Probe.reader` may have.
READERS: dict[str, Callable[[Columns], ProbeExamples]] = {
    "cola": read_cola,
    "sst2": read_sst2,
    "race": read_race_choices,
    "dprd": read_dprd,
}


def zero_shot(
    preset: str | os.PathLike[str],
    names: Sequence[str],
    output: str | os.PathLike[str],
    data: DataOptions = DEFAULT_DATA,
    limit: int | None = None,
) -> dict[str, dict[str, Any]]:
    """Runs probes on a model; returns what `run_probe` does, by name.

    Args:
        preset: name of a preset that ships, or path of a language model's preset.
        output: path of the file of scores. It is written after each probe; probes that it holds are
            not run again.
        limit: how many examples of each probe to use; all by default.
    """
    find_preset(preset)
    probes = _find_probes(names, data)
    asked = {"preset": str(preset), "limit": limit}
    output = pathlib.Path(output)
    check_writable(output.parent)
    result = _read_result(output, asked, {"probes": {}})
    scorer = None
    for name in names:
        if name not in result["probes"]:
            scorer = scorer or Scorer(load_task(preset, gpt1_keras.GPT1CausalLM))
            result["probes"][name] = run_probe(scorer, probes[name], data, limit)
            write_json(output, result)
    return {name: result["probes"][name] for name in names}


def zero_shot_series(
    runs: Sequence[str | os.PathLike[str]],
    names: Sequence[str],
    output: str | os.PathLike[str],
    data: DataOptions = DEFAULT_DATA,
    limit: int | None = None,
) -> dict[str, Any]:
    """Runs probes on all snapshots of a pre-training, and on its final model.

    Args:
        runs: path of the run's folder; or, where runs went on from one another, of each, in order.
            All snapshots of the last run count; of the others, those up to where the next run went
            on.

    Returns:
        dict of `run`, `names`, `limit`, `decoder`, `passes_per_update` (over the corpus), and
        `series`: a list of dicts of `step` and `probes`, in order.
    """
    output, last = pathlib.Path(output), pathlib.Path(runs[-1])
    snapshots = _find_snapshots([pathlib.Path(run) for run in runs])
    probes = _find_probes(names, data)
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
        scores = {name: run_probe(scorer, probe, data, limit) for name, probe in probes.items()}
        result["series"].append({"step": step, "probes": scores})
        write_json(output, result)
        shown = ", ".join(f"{name} {found['score']:.4f}" for name, found in scores.items())
        print(f"step {step}: {shown}", flush=True)
    return result


def plot_series(results: Sequence[dict[str, Any]], path: str | os.PathLike[str]) -> None:
    """Plots the scaled scores against passes over the corpus: the first solid, others dashed."""
    names = results[0]["names"]
    figure, panels = new_figure(width=3.2 * len(names), height=3.8, columns=len(names))
    for axes, name in zip(panels, names):
        for result, style, color in zip(results, ("-", "--"), COLORS):
            kind = "LSTM" if result["decoder"] == "LSTMBackbone" else "GPT-1"
            passes = [entry["step"] * result["passes_per_update"] for entry in result["series"]]
            shares = [entry["probes"][name]["relative"] for entry in result["series"]]
            axes.plot(passes, shares, style, color=color, label=kind)
        axes.axhline(0, color="0.5", linewidth=0.8)
        axes.set_xlim(left=0)
        axes.set(title=name, xlabel="passes over the corpus")
        axes.sharey(panels[0])
    panels[0].set_ylabel("0: guessing\n1: the best before the paper")
    figure.suptitle("Zero-shot scores during pre-training (figure 2, right)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, edgecolor="none")
    save(figure, path)


def read_beside(path: str, names: Sequence[str]) -> dict[str, Any]:
    """Reads the result of another run. Raises ValueError if it lacks a probe that is plotted."""
    result = read_json(path)
    missing = [name for name in names if name not in result.get("names", ())]
    if missing or "passes_per_update" not in result:
        raise ValueError(
            f"{path} is no result of gpt1 paper zero_shot --run with the probes {list(names)}."
        )
    return result


def run_probe(
    scorer: _Score,
    probe: Probe,
    data: DataOptions = DEFAULT_DATA,
    limit: int | None = None,
) -> dict[str, Any]:
    """Runs a probe.

    Args:
        scorer: `training.evaluation.likelihood.Scorer`.

    Returns:
        dict of `score`; `relative`, the score on a scale from chance (0) to the previous best (1);
        and `questions`, the number of examples.
    """
    examples = _load(probe, probe.split, data).first(limit)
    scores = _score_choices(scorer, examples)
    metric = METRICS[probe.metric]
    if probe.threshold_split is None:
        predictions = np.array([np.argmax(choices) for choices in scores])
    else:
        known = _load(probe, probe.threshold_split, data).first(limit)
        known_scores = np.concatenate(_score_choices(scorer, known))
        threshold = best_threshold(known_scores, known.labels, metric)
        predictions = (np.concatenate(scores) > threshold).astype(int)
    score = float(metric(examples.labels, predictions))
    relative = (score - probe.chance) / (probe.previous_best - probe.chance)
    return {"score": score, "relative": relative, "questions": len(predictions)}


def best_threshold(scores: np.ndarray, labels: np.ndarray, metric: Metric) -> float:
    """Finds the percentile of the scores that is the best threshold for predicting 1.

    The paper does not say how it chose its threshold.
    """
    candidates = np.quantile(scores, np.linspace(0.01, 0.99, 99))
    found = [metric(labels, (scores > candidate).astype(int)) for candidate in candidates]
    return candidates[int(np.argmax(found))]


def _load(probe: Probe, split: str, data: DataOptions) -> ProbeExamples:
    columns = read_split(prepared_builder(probe.tfds_name, data), split)
    return READERS[probe.reader](columns)


def _score_choices(scorer: _Score, examples: ProbeExamples) -> list[np.ndarray]:
    counts = [len(choices) for choices in examples.choices]
    scores = scorer([pair for choices in examples.choices for pair in choices])
    return np.split(scores, np.cumsum(counts)[:-1])


def _find_snapshots(runs: Sequence[pathlib.Path]) -> dict[int, pathlib.Path]:
    *earlier_runs, last_run = runs
    last = _read_number(last_run, "steps")
    found: dict[int, pathlib.Path] = {}
    for earlier in earlier_runs:
        shared = shared_steps(earlier, read_json(last_run / "options.json"))
        found |= {step: path for step, path in _snapshots(earlier) if step <= shared}
    found |= dict(_snapshots(last_run))
    if not found:
        raise FileNotFoundError(f"{last_run} has no snapshots: it ran without --snapshot-every.")
    found.pop(last, None)
    return {**dict(sorted(found.items())), last: last_run / "preset" / "model.weights.h5"}


def _snapshots(run: pathlib.Path) -> list[tuple[int, pathlib.Path]]:
    matches = [(_SNAPSHOT.fullmatch(path.name), path) for path in (run / "snapshots").glob("*.h5")]
    return [(int(match[1]), path) for match, path in matches if match]


def _passes_per_update(run: pathlib.Path) -> float:
    window, windows = _read_number(run, "sequence_length"), _read_number(run, "batch_size")
    return window * windows / _read_number(run, "train_tokens")


def _read_number(run: pathlib.Path, name: str) -> int:
    path = run / "result.json"
    if not path.is_file():
        raise FileNotFoundError(f"{run} is not a finished pre-training: it has no result.json.")
    number = read_json(path).get(name)
    if not isinstance(number, int) or number < 1:
        raise ValueError(f"{path} is damaged: expected the number of {name} in it.")
    return number


def _find_probes(names: Sequence[str], data: DataOptions) -> dict[str, Probe]:
    """Returns the probes by name. Raises FileNotFoundError if a data set is missing."""
    probes = {name: find_probe(name) for name in names}
    for probe in probes.values():
        prepared_builder(probe.tfds_name, data)
    return probes


def _read_result(
    path: pathlib.Path, asked: dict[str, Any], fresh: dict[str, Any]
) -> dict[str, Any]:
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


if __name__ == "__main__":  # `python -m training.paper.zero_shot` is `gpt1 paper zero_shot`
    sys.argv.insert(1, "zero_shot")
    runpy.run_module("training.paper", run_name="__main__", alter_sys=True)
